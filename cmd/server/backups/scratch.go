package backups

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// scratchPrefix begins the names of directories for drills, in the directory of temporary files.
const scratchPrefix = "regent-drill-"

// WithScratch calls do with a temporary directory, and removes it. What others have left that were killed is removed
// first: Secrets are in it.
func WithScratch(do func(directory string) error) error {
	left, err := filepath.Glob(filepath.Join(os.TempDir(), scratchPrefix+"*"))
	if err != nil {
		return fmt.Errorf("look for what former drills have left: %w", err)
	}
	for _, directory := range left {
		if !isOwn(directory) {
			continue
		}
		unlock, err := lock(directory)
		if err != nil { // somebody works there
			continue
		}
		err = os.RemoveAll(directory)
		unlock()
		if err != nil {
			return fmt.Errorf("remove what a former drill has left, by hand if need be: %w", err)
		}
	}
	directory, err := os.MkdirTemp("", scratchPrefix)
	if err != nil {
		return fmt.Errorf("make a temporary directory: %w", err)
	}
	unlock, err := lock(directory)
	if err == nil {
		defer unlock()
		err = do(directory)
	}
	if failed := os.RemoveAll(directory); failed != nil { // it counts more than what do says
		return fmt.Errorf("remove %s by hand, Secrets are in it: %w", directory, failed)
	}
	return err
}

// isOwn reports whether a directory is one of this user. Others may make what they like where temporary files are, such
// as a link to a directory of this user.
func isOwn(directory string) bool {
	info, err := os.Lstat(directory)
	if err != nil || !info.IsDir() {
		return false
	}
	is, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(is.Uid) == os.Geteuid()
}
