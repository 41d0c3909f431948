package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of CPU time in /proc: USER_HZ, which is 100 wherever Linux runs.
const clockTick = 10 * time.Millisecond

// treeCPU returns the CPU time of a process and all that it has started: of those that live by their own account, and
// of others by the account of who waited for them. What cannot be read has ended meanwhile, and counts there.
func treeCPU(pid int) time.Duration {
	id := strconv.Itoa(pid)
	content, err := os.ReadFile(filepath.Join("/proc", id, "stat"))
	if err != nil {
		return 0
	}
	total := statCPU(string(content))
	children, _ := filepath.Glob(filepath.Join("/proc", id, "task", "*", "children"))
	for _, file := range children {
		listed, _ := os.ReadFile(file)
		for child := range strings.FieldsSeq(string(listed)) {
			if n, err := strconv.Atoi(child); err == nil {
				total += treeCPU(n)
			}
		}
	}
	return total
}

// statCPU reads utime, stime, cutime and cstime of a line of /proc/<pid>/stat (proc(5)). The name before them may have
// spaces and parentheses.
func statCPU(stat string) time.Duration {
	_, rest, _ := strings.Cut(stat[strings.LastIndexByte(stat, ')')+1:], " ")
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return 0
	}
	var ticks int64
	for _, f := range fields[11:15] {
		n, _ := strconv.ParseInt(f, 10, 64)
		ticks += n
	}
	return time.Duration(ticks) * clockTick
}
