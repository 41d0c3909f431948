package identity

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/server/access"
)

// A read that began before a right was revoked must not be given to a request that asks after that: it would have the
// right again. Nor one that began before a right was granted: it would be refused what is its right.
func TestNoRequestIsGivenAPolicyThatWasReadBeforeItAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stored atomic.Pointer[access.Snapshot]
		var reads atomic.Int32
		var shared sharedReads
		read := func() (access.Policy, error) {
			reads.Add(1)
			found := stored.Load()
			time.Sleep(time.Second)
			return found, nil
		}
		var all sync.WaitGroup
		ask := func() {
			want := stored.Load()
			all.Go(func() {
				if got, err := shared.do(t.Context(), "team", read); err != nil || got != access.Policy(want) {
					t.Errorf("who asks while %p is stored gets %p (%v)", want, got, err)
				}
			})
			synctest.Wait()
		}
		for range 3 { // the first reads, the second waits for the next, and the third with it
			stored.Store(&access.Snapshot{})
			ask()
			time.Sleep(300 * time.Millisecond)
			ask()
			ask()
			all.Wait()
		}
		if n := reads.Load(); n != 6 {
			t.Errorf("nine requests have caused %d reads, want two for each three", n)
		}
		stored.Store(&access.Snapshot{})
		ask()
		stored.Store(&access.Snapshot{})
		ask()
		all.Wait()
		if len(shared.running)+len(shared.next) != 0 {
			t.Errorf("something is left of reads that have ended: %v, %v", shared.running, shared.next)
		}
	})
}

// Whoever hangs up keeps nobody else waiting, and a read that panics is an error for those who share it.
func TestWhoSharesAReadDoesNotDependOnTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shared sharedReads
		slow := func() (access.Policy, error) {
			time.Sleep(time.Second)
			return &access.Snapshot{}, nil
		}
		var all sync.WaitGroup
		do := func(ctx context.Context, read func() (access.Policy, error), want error) {
			all.Go(func() {
				defer func() { _ = recover() }() // as the server does
				if _, err := shared.do(ctx, "team", read); !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
			})
			synctest.Wait()
		}
		gone, cancel := context.WithCancel(t.Context())
		do(t.Context(), slow, nil)
		do(gone, func() (access.Policy, error) { panic("a fault") }, nil)
		do(gone, slow, context.Canceled)
		do(t.Context(), slow, errNotRead)
		cancel()
		all.Wait()
		do(t.Context(), slow, nil)
		all.Wait()
	})
}
