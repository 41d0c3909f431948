// Package programtest is for tests of whole programs whose work goes wrong at random.
package programtest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// Job is the work of a program's terms, which goes wrong at random until Mend is called. Any goroutine may call its
// methods.
type Job struct {
	late time.Duration

	mu     sync.Mutex
	random *rand.Rand
	mended bool
	began  int
	runs   int
	twice  bool
}

// NewJob returns a Job. late is for how long work goes on after the end of its term, if it does: longer than an elector
// waits.
func NewJob(random *rand.Rand, late time.Duration) *Job { return &Job{random: random, late: late} }

// errJob is the error of work that fails.
var errJob = errors.New("the work has failed, by the test")

// jobs are what can become of the work of a term. It waits for the end of its term with over.
var jobs = []func(over func(), late time.Duration) error{
	func(over func(), _ time.Duration) error { over(); return nil },
	func(over func(), _ time.Duration) error { over(); return nil }, // twice as often as any other
	func(func(), time.Duration) error { return nil },
	func(func(), time.Duration) error { return errJob },
	func(func(), time.Duration) error { panic(errJob) },
	func(over func(), _ time.Duration) error { over(); return errJob },
	func(over func(), _ time.Duration) error { over(); panic(errJob) },
	func(over func(), late time.Duration) error { over(); time.Sleep(late); return nil },
	func(over func(), late time.Duration) error { over(); time.Sleep(late); panic(errJob) },
}

// Do does the work of a term.
func (j *Job) Do(ctx context.Context) error {
	j.mu.Lock()
	j.began++
	j.runs++
	j.twice = j.twice || j.runs > 1
	do, lasts := jobs[j.random.IntN(len(jobs))], time.Duration(j.random.Int64N(int64(j.late)))
	if j.mended {
		do = jobs[0]
	}
	j.mu.Unlock()
	defer func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.runs--
	}()
	timer := time.NewTimer(lasts) // work that fails does so at any time
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return do(func() { <-ctx.Done() }, j.late)
}

// Mend has the work of terms that begin later go well, or wrong again.
func (j *Job) Mend(so bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mended = so
}

// Terms returns how many terms there were.
func (j *Job) Terms() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.began
}

// Works reports whether the work of a term goes on, or that of one that is over.
func (j *Job) Works() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.runs > 0
}

// Twice reports whether the works of two terms have ever run at once.
func (j *Job) Twice() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.twice
}

// Goroutines returns how many goroutines of bubbles of testing/synctest there are. runtime.NumGoroutine also counts
// those of the runtime that happen to work for the program.
func Goroutines() int {
	stacks := make([]byte, 1<<20)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte(", synctest bubble "))
}
