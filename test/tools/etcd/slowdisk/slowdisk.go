// Package slowdisk lets a test make the disk of a running etcd slow.
package slowdisk

import (
	"os"
	"strings"
	"time"
)

// Wait must be called before each sync of a file. It sleeps for the duration, such as 200ms, in the file that the
// environment variable SLOW_DISK names. Without the variable or the file it returns at once.
func Wait() {
	file := os.Getenv("SLOW_DISK")
	if file == "" {
		return
	}
	said, err := os.ReadFile(file)
	if err != nil {
		return
	}
	if delay, err := time.ParseDuration(strings.TrimSpace(string(said))); err == nil {
		time.Sleep(delay)
	}
}
