package etcd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// InUseError says that another process runs an etcd in the directory.
type InUseError struct {
	Directory string
	// Endpoint is the URL of that etcd. Empty while it is still starting.
	Endpoint string
}

func (e *InUseError) Error() string {
	endpoint := e.Endpoint
	if endpoint == "" {
		endpoint = "<its URL>"
	}
	reach := way(e.Directory, endpoint)
	return fmt.Sprintf("another process runs the embedded etcd in %s: to add a replica to its shard use --etcd-servers=%s --etcd-cafile=%s --etcd-certfile=%s --etcd-keyfile=%s, for another shard use another --root-directory",
		e.Directory, endpoint, reach.TrustedCAFile, reach.CertFile, reach.KeyFile)
}

// directoryLock is a file that is locked while its process lives: the kernel releases the lock however the process
// dies. Without it a second etcd would silently wait for the first one's database.
type directoryLock struct{ file *os.File }

func lockDirectory(directory string) (*directoryLock, error) {
	file, err := os.OpenFile(filepath.Join(directory, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the embedded etcd's lock file: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		endpoint, _ := io.ReadAll(io.LimitReader(file, 1024))
		_ = file.Close()
		return nil, &InUseError{Directory: directory, Endpoint: strings.TrimSpace(string(endpoint))}
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("cannot lock %s: %w", file.Name(), err)
	}
	l := &directoryLock{file: file}
	if err := l.publish(""); err != nil {
		l.release()
		return nil, err
	}
	return l, nil
}

// publish writes the endpoint into the file, for the InUseError of other processes.
func (l *directoryLock) publish(endpoint string) error {
	if err := l.file.Truncate(0); err != nil {
		return fmt.Errorf("cannot write the embedded etcd's lock file: %w", err)
	}
	if _, err := l.file.WriteAt([]byte(endpoint+"\n"), 0); err != nil {
		return fmt.Errorf("cannot write the embedded etcd's lock file: %w", err)
	}
	return nil
}

func (l *directoryLock) release() { _ = l.file.Close() }
