package lease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// record is what a watcher has logged for people, and when after its start.
type record struct {
	mu    sync.Mutex
	began time.Time
	lines []string
}

func (s *record) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lines = append(s.lines, fmt.Sprintf("%v: %s", time.Since(s.began).Round(time.Second), args))
	}, funcr.Options{})
}

// of returns the lines that contain part.
func (s *record) of(part string) (lines []string) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.lines), func(line string) bool { return !strings.Contains(line, part) })
}

// watched runs a watcher on a store until the test ends.
func watched(t *testing.T, change func(*electiontest.Client)) (*electiontest.Client, *lease.Watcher, *record) {
	t.Helper()
	client, told := electiontest.NewStore("controllers").Client(), &record{began: time.Now()}
	change(client)
	view := lease.NewView(logr.Discard(), func(string) bool { return false })
	watcher := lease.NewWatcher(lease.API{Client: client, Namespace: "default", Name: "controllers", Timeout: 3 * time.Second}, view, 2*time.Second)
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), told.logger()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watcher.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return client, watcher, told
}

var (
	leases       = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	errForbidden = apierrors.NewForbidden(leases, "", errors.New("a Role is missing"))
	errNoPort    = errors.New("connection refused")
)

func TestALeaseThatCannotBeReadIsToldOf(t *testing.T) {
	for name, test := range map[string]struct {
		fault electiontest.Fault
		of    electiontest.Request
		first time.Duration // when people are told first
		what  string
	}{
		"forbidden":              {electiontest.Fault{Err: errForbidden}, electiontest.List, 0, "Cannot read the Lease: "},
		"unauthorized":           {electiontest.Fault{Err: apierrors.NewUnauthorized("who?")}, electiontest.List, 0, "Cannot read the Lease: "},
		"no such resource":       {electiontest.Fault{Err: apierrors.NewNotFound(leases, "")}, electiontest.List, 0, "Cannot read the Lease: "},
		"no server":              {electiontest.Fault{Err: errNoPort}, electiontest.List, 3 * time.Second, "Cannot read the Lease: "},
		"no answer":              {electiontest.Fault{Hang: true}, electiontest.List, 3 * time.Second, "Cannot read the Lease: "},
		"the watch is forbidden": {electiontest.Fault{Err: errForbidden}, electiontest.Watch, 0, "Cannot watch the Lease: "},
		"the watch fails":        {electiontest.Fault{Err: errNoPort}, electiontest.Watch, 3 * time.Second, "Cannot watch the Lease: "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, watcher, told := watched(t, func(c *electiontest.Client) { c.Always(test.fault, test.of) })
				time.Sleep(test.first + 500*time.Millisecond)
				if lines := told.of(test.what); len(lines) != 1 || !strings.Contains(lines[0], "verbs list and watch") {
					t.Errorf("after %v: %q", test.first, told.of(""))
				}
				if watcher.Fault() == "" {
					t.Error("no fault")
				}
				time.Sleep(10 * time.Minute)
				if n := len(told.of(test.what)); n < 11 || n > 16 {
					t.Errorf("told %d times in 10 min: %q", n, told.of(""))
				}
				client.Always(electiontest.Fault{})
				time.Sleep(10 * time.Second)
				if lines := told.of("can be read and watched again"); len(lines) != 1 || watcher.Fault() != "" {
					t.Errorf("when it can be read: %q, and the fault is %q", lines, watcher.Fault())
				}
				client.Next(test.of, electiontest.Fault{Err: errNoPort}, electiontest.Fault{Err: errNoPort})
				client.DropWatches()
				n := len(told.of(""))
				time.Sleep(10 * time.Second)
				if lines := told.of(""); len(lines) != n {
					t.Errorf("a moment's fault was told: %q", lines[n:])
				}
			})
		})
	}
}

func TestALeaseThatWasReadBeforeIsToldOfAsSuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _, told := watched(t, func(*electiontest.Client) {})
		time.Sleep(time.Second)
		client.Always(electiontest.Fault{Err: errForbidden})
		client.DropWatches()
		time.Sleep(time.Second)
		if lines := told.of("Cannot read the Lease any more: "); len(lines) != 1 {
			t.Errorf("%q", told.of(""))
		}
	})
}

func TestALeaseOfALifeThatCannotBeReadIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, told := electiontest.NewStore("life-1"), &record{began: time.Now()}
		client := store.Client()
		client.Always(electiontest.Fault{Err: errForbidden})
		view := lease.NewView(logr.Discard(), func(string) bool { return false })
		ctx, cancel := context.WithTimeout(klog.NewContext(t.Context(), told.logger()), time.Second)
		defer cancel()
		lease.NewLifeWatcher(lease.API{Client: client, Namespace: "default", Name: "life-1", Timeout: time.Second}, view, time.Second).Run(ctx)
		if lines := told.of("Cannot read the Lease that stands for a process's life"); len(lines) != 1 || !strings.Contains(lines[0], `"object"="life-1"`) {
			t.Errorf("%q", told.of(""))
		}
	})
}

func TestAServerThatClosesWatchesIsNotToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _, told := watched(t, func(*electiontest.Client) {})
		for range 100 {
			time.Sleep(10 * time.Second)
			client.DropWatches()
		}
		if lines := told.of(""); len(lines) != 0 {
			t.Errorf("%q", lines)
		}
	})
}
