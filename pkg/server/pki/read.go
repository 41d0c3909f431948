package pki

import (
	"fmt"
	"io"
	"os"
)

// othersMayAny are bits of a file's mode.
const othersMayAny = 0o077

// readKey reads a file. It returns an error if other users may read or write it.
func readKey(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&othersMayAny != 0 {
		return nil, fmt.Errorf("others may use the key %s (mode %04o): run chmod 0600 %s; if others had access to this machine, have all keys made again", name, mode, name)
	}
	return io.ReadAll(file)
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
