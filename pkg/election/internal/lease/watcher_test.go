package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// The view shows what was written: by the watch, by the next watch if that one ends, and by a read if the watch sends
// nothing.
func TestAWatcherShowsWhatIsWrittenUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore("controllers")
		client := store.Client()
		api := lease.API{Client: client, Namespace: "kube-system", Name: "controllers", Timeout: time.Second}
		view := lease.NewView(logr.Discard(), func(string) bool { return false })
		watcher := lease.NewWatcher(api, view, time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			watcher.Run(ctx)
		}()
		shows := func(when, holder string) {
			t.Helper()
			synctest.Wait()
			if seen, _ := view.Latest(); !seen.IsKnown() || seen.Holder() != holder {
				t.Errorf("%s: known %t, holder %q, want %q", when, seen.IsKnown(), seen.Holder(), holder)
			}
		}
		shows("there is none", "")
		store.Take("a", time.Minute)
		shows("taken", "a")
		client.DropWatches()
		store.Take("b", time.Minute)
		shows("taken while nothing watches", "a")
		time.Sleep(100 * time.Millisecond)
		shows("watched again", "b")
		client.HoldWatches(true)
		store.Take("c", time.Minute)
		shows("the watch is late", "b")
		watcher.Distrust()
		shows("read", "c")
		store.Delete()
		time.Sleep(time.Minute)
		shows("deleted, and read once a minute", "")
		client.HoldWatches(false)
		cancel()
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("it has not ended with its context")
		}
	})
}
