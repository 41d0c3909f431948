package loop_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
	"github.com/regent-project/regent/pkg/controllers/loop"
	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
)

// Whatever hangs for one logical cluster, and for however long nobody else has work: no term ends for it, nobody else
// waits, and the cluster itself gets on (I18).
func TestNoClusterTakesTheTermFromOthersI18(t *testing.T) {
	for name, c := range map[string]struct {
		hang   func(ctx context.Context, forGood <-chan struct{}) error
		heldBy string
	}{
		// Its webhook hangs, for example, or it has a million objects.
		"reconciles that wait":                 {func(ctx context.Context, _ <-chan struct{}) error { <-ctx.Done(); return ctx.Err() }, ""},
		"reconciles that ignore their context": {func(_ context.Context, forGood <-chan struct{}) error { <-forGood; return nil }, "hog"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var objects []*corev1.ConfigMap
				for n := range 30 {
					objects = append(objects, configMap("hog", fmt.Sprint(n)))
				}
				source := controllertest.NewSource(objects...)
				inf := controllertest.Informer(t, source, nil)
				var mu sync.Mutex
				forGood, tries, done := make(chan struct{}), 0, make(chan clusters.Key, 1)
				l := loop.New(clusters.Range{}, "test", 4, func(ctx context.Context, k clusters.Key) error {
					if k.Cluster != "hog" {
						done <- k
						return nil
					}
					mu.Lock()
					tries++
					mu.Unlock()
					return c.hang(ctx, forGood)
				})
				loop.Watch(l, inf, keys)
				p, ended := supervisor.NewProbe(), make(chan error, 1)
				ctx, cancel := context.WithCancel(t.Context())
				set := []control.Descriptor[any]{{Name: "test", New: func(context.Context, any) (control.Controller, error) { return l, nil }}}
				go func() {
					ended <- supervisor.Run(ctx, set, nil, supervisor.Config{Probe: p})
				}()
				time.Sleep(time.Hour)
				if s := p.Status()[0]; s.State != supervisor.Running || s.Stalls+s.Restarts != 0 || s.HeldBy != c.heldBy {
					t.Errorf("after an hour: %+v", s)
				}
				mu.Lock()
				if c.heldBy == "" && tries < 100 {
					t.Errorf("its keys were tried %d times", tries)
				}
				mu.Unlock()
				for n := range 10 {
					began := time.Now()
					source.Set(configMap("other", fmt.Sprint(n)))
					<-done
					if took := time.Since(began); took > time.Second {
						t.Errorf("somebody else waited for %v", took)
					}
				}
				cancel()
				close(forGood)
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Keys that name no logical cluster are not of one group: what hangs is a stall, and all workers may work for them.
func TestKeysOfTheShardAreNobodysInParticular(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 4
		forGood := make(chan struct{})
		l := loop.New(clusters.Range{}, "test", workers, func(context.Context, string) error {
			<-forGood
			return nil
		})
		for n := range 2 * workers {
			l.Add(fmt.Sprint(n))
		}
		p, ended := supervisor.NewProbe(), make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		set := []control.Descriptor[any]{{Name: "test", New: func(context.Context, any) (control.Controller, error) { return l, nil }}}
		go func() { ended <- supervisor.Run(ctx, set, nil, supervisor.Config{Probe: p}) }()
		time.Sleep(90 * time.Second)
		if s := p.Status()[0]; s.State != supervisor.Stalled || s.HeldBy != "" {
			t.Errorf("what hangs is %s, held by %q", s.State, s.HeldBy)
		}
		close(forGood)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
