package perterm

import (
	"testing"
	"testing/synctest"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/regent-project/regent/pkg/election/internal/undone"
	"github.com/regent-project/regent/pkg/election/join"
)

// slow is an informer whose handlers see what it has after a while.
type slow struct {
	cache.Informer
	synced  bool
	handles time.Duration
}

func (s *slow) HasSynced() bool { return s.synced }

func (s *slow) AddEventHandler(toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	seen := make(handled)
	time.AfterFunc(s.handles, func() { close(seen) })
	return seen, nil
}

func (*slow) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error { return nil }

// handled is closed when the handler has seen everything.
type handled chan struct{}

func (h handled) HasSynced() bool                          { return toolscache.IsDone(h) }
func (h handled) HasSyncedChecker() toolscache.DoneChecker { return h }
func (handled) Name() string                               { return "slow" }
func (h handled) Done() <-chan struct{}                    { return h }

func TestAddingAHandlerWaitsForNothingThatMayNeverCome(t *testing.T) {
	for name, c := range map[string]struct {
		informer slow
		over     time.Duration // when the term ends
		want     time.Duration
	}{
		"a full cache":                         {slow{synced: true, handles: time.Millisecond}, time.Hour, time.Millisecond},
		"a cache that is not full yet":         {slow{handles: time.Minute}, time.Hour, 0},
		"a term that ends":                     {slow{synced: true, handles: time.Minute}, 10 * time.Millisecond, 10 * time.Millisecond},
		"a term that has ended":                {slow{synced: true, handles: time.Minute}, 0, 0},
		"a handler that waits for who adds it": {slow{synced: true, handles: time.Minute}, time.Hour, syncPatience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				scope := join.New(t.Context(), join.Options{Patience: -1})
				defer scope.End()
				over := make(chan struct{})
				if c.over == 0 {
					close(over)
				} else {
					time.AfterFunc(c.over, func() { close(over) })
				}
				began := time.Now()
				if _, err := (&informer{Informer: &c.informer, scope: scope, over: over, undone: &undone.Undone{}}).AddEventHandler(nil); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took != c.want {
					t.Errorf("waited for %v, want %v", took, c.want)
				}
			})
		})
	}
}
