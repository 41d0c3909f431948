package dev

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// mostLog is how many bytes a log file may have. When it is full, it becomes <name>.1, and the one that had that name
// is removed.
const mostLog = 16 << 20

// logFile keeps a child's whole log, across restarts. It is for one goroutine at a time.
type logFile struct {
	name string
	most int64

	file *os.File // nil: it is not open
	size int64
}

// writeLine appends a line. After an error the next line is tried again.
func (l *logFile) writeLine(line []byte) error {
	if err := l.open(); err != nil {
		return err
	}
	if l.size > 0 && l.size+int64(len(line)) >= l.most {
		if err := errors.Join(l.close(), os.Rename(l.name, l.name+".1"), l.open()); err != nil {
			return fmt.Errorf("cannot begin a new log file: %w", err)
		}
	}
	n, err := l.file.Write(append(line[:len(line):len(line)], '\n'))
	l.size += int64(n)
	if err != nil {
		return errors.Join(fmt.Errorf("cannot write the log: %w", err), l.close())
	}
	return nil
}

// open opens the file, unless it is open.
func (l *logFile) open() error {
	if l.file != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(l.name), 0o700); err != nil {
		return fmt.Errorf("cannot make the directory of logs: %w", err)
	}
	file, err := os.OpenFile(l.name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot open the log: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("cannot open the log: %w", err), file.Close())
	}
	l.file, l.size = file, info.Size()
	return nil
}

// close closes the file. The next line opens it again.
func (l *logFile) close() error {
	if l.file == nil {
		return nil
	}
	file := l.file
	l.file = nil
	return file.Close()
}
