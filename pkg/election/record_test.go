package election_test

import (
	"context"
	"strings"
	"sync"
	"testing/synctest"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"
)

// record has what a replica has logged.
type record struct {
	mu    sync.Mutex
	lines []string
}

// in returns ctx with a logger that writes into the record, or ctx if there is none.
func (r *record) in(ctx context.Context) context.Context {
	if r == nil {
		return ctx
	}
	return klog.NewContext(ctx, funcr.New(func(_, line string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lines = append(r.lines, line)
	}, funcr.Options{}))
}

// with returns the lines that contain all the parts.
func (r *record) with(parts ...string) (lines []string) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
lines:
	for _, line := range r.lines {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue lines
			}
		}
		lines = append(lines, line)
	}
	return lines
}
