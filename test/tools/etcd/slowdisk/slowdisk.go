// Package slowdisk lets a test make the disk of a running etcd slow.
package slowdisk

import (
	"os"
	"strings"
	"time"
)

// Wait is to be called before each sync of a file. It sleeps for as long as the file says that the environment variable
// SLOW_DISK names, such as 200ms; without the one or the other it returns at once.
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
