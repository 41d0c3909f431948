package front

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/pkg/server/shards"
)

// reading returns a front that has read a snapshot, in the bubble of a test.
func (m *members) reading(call shards.Keys, saved ...savedShard) *Front {
	m.Helper()
	cfg := m.cfg
	cfg.keys = &keys{first: m.cfg.keys.first, changed: make(chan *standing), caller: shards.NewCaller(call)}
	return &Front{cfg: cfg, index: newIndex("root"), shards: map[string]*shard{}, fromSnapshot: saved}
}

// Nothing else would tell the front that it can reach a shard now: without the root shard it hears of no Shard object.
func TestAShardThatCannotBeSetUpIsTriedAgain(t *testing.T) {
	m := newMembers(t)
	synctest.Test(t, func(t *testing.T) {
		began, call := time.Now(), m.cfg.keys.call
		f := m.reading(func() ([]byte, *pki.Authority) {
			if time.Since(began) < 10*time.Second {
				return nil, m.cfg.keys.first.authority
			}
			return call()
		}, savedShard{Name: "eu1", URLs: []string{"https://127.0.0.1:1"}}, savedShard{Name: "us1", URLs: []string{"faulty"}})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		running.Go(func() { f.read(ctx) })
		synctest.Wait()
		if _, all := f.unheard(); all != 0 {
			t.Errorf("%d shards are read without keys", all)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		for name, want := range map[string]bool{"root": true, "eu1": true, "us1": false} {
			if _, ok := f.shard(name); ok != want {
				t.Errorf("shard %s is read: %t", name, ok)
			}
		}
	})
}

// A front of an older version may have written it. Only the root shard says where the shards are now.
func TestFaultyURLsOfTheRootShardInASnapshotGiveWayToTheMemberships(t *testing.T) {
	m := newMembers(t)
	synctest.Test(t, func(t *testing.T) {
		f := m.reading(m.cfg.keys.call, savedShard{Name: "root", URLs: []string{"faulty"}})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		running.Go(func() { f.read(ctx) })
		synctest.Wait()
		if _, ok := f.shard("root"); !ok {
			t.Error("the root shard is not read")
		}
	})
}
