package loop_test

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

	"github.com/regent-project/regent/pkg/election/control/loop"
)

// tenant is whom a key such as "hog/17" is of.
func tenant(key string) string {
	name, _, _ := strings.Cut(key, "/")
	return name
}

// quiet adds a key of its own each second, and returns how long the slowest of them took.
func quiet(l *loop.Loop[string], done <-chan string) (slowest time.Duration) {
	for n := range 20 {
		time.Sleep(time.Second)
		began := time.Now()
		l.Add(fmt.Sprint("quiet/", n))
		<-done
		slowest = max(slowest, time.Since(began))
	}
	return slowest
}

// However many keys others have, however long these take, and whether they hang or fail: a tenant with one key waits
// for none of them (I18).
func TestNobodysKeysHoldUpThoseOfOthers(t *testing.T) {
	const workers = 4
	for name, hogs := range map[string]struct {
		tenants int
		work    func(context.Context) error
	}{
		"many keys that take long": {1, func(ctx context.Context) error { return pause(ctx, 10*time.Second) }},
		"of several tenants":       {2, func(ctx context.Context) error { return pause(ctx, 10*time.Second) }},
		"many keys that hang":      {2, func(ctx context.Context) error { <-ctx.Done(); return nil }},
		"many keys that are quick": {3, func(ctx context.Context) error { return pause(ctx, time.Millisecond) }},
		"many keys that always fail": {3, func(ctx context.Context) error {
			return errors.Join(pause(ctx, time.Millisecond), errors.New("so it fails"))
		}},
		"keys that fail after a time": {2, func(ctx context.Context) error {
			return errors.Join(pause(ctx, 5*time.Second), errors.New("so it fails"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				done := make(chan string, 100)
				l := loop.New("test", workers, func(ctx context.Context, key string) error {
					if tenant(key) != "quiet" {
						return hogs.work(ctx)
					}
					done <- key
					return nil
				})
				l.By(tenant)
				stop := start(t.Context(), l)
				for n := range 2000 {
					for of := range hogs.tenants {
						l.Add(fmt.Sprintf("hog%d/%d", of, n))
					}
				}
				if took := quiet(l, done); took > 10*time.Millisecond {
					t.Errorf("a quiet tenant waited for %v", took)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return nil
}

// Tenants share the workers' time, not the number of keys: one whose keys take ten times as long gets as much of it as
// the other.
func TestTenantsShareTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		spent := map[string]time.Duration{}
		l := loop.New("test", 2, func(ctx context.Context, key string) error {
			took := time.Millisecond
			if tenant(key) == "slow" {
				took = 10 * time.Millisecond
			}
			_ = pause(ctx, took)
			mu.Lock()
			defer mu.Unlock()
			spent[tenant(key)] += took
			return nil
		})
		l.By(tenant)
		for n := range 20000 {
			l.Add(fmt.Sprint("slow/", n))
			l.Add(fmt.Sprint("fast/", n))
			l.Add(fmt.Sprint("other/", n))
		}
		stop := start(t.Context(), l)
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		all := []time.Duration{spent["slow"], spent["fast"], spent["other"]}
		if most, least := slices.Max(all), slices.Min(all); len(spent) != 3 || most > least+least/10+20*time.Millisecond {
			t.Errorf("they got %v of the workers", spent)
		}
	})
}

// A tenant's next key is taken as soon as one of its others is done, whoever else still works, and however many workers
// wait for keys of others.
func TestAKeyIsTakenAsSoonAsItMayBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, done := time.Now(), make(chan time.Duration, 100)
		l := loop.New("test", 4, func(ctx context.Context, key string) error {
			if key == "one/long" {
				return pause(ctx, time.Hour)
			}
			_ = pause(ctx, 100*time.Millisecond)
			done <- time.Since(began)
			return nil
		})
		l.By(tenant)
		stop := start(t.Context(), l)
		l.Add("one/long")
		synctest.Wait()
		for n := range 50 {
			l.Add(fmt.Sprint("one/", n))
		}
		var last time.Duration
		for range 50 {
			last = <-done
		}
		if last > 6*time.Second {
			t.Errorf("50 keys of 100 ms took one worker %v", last)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A tenant that had the workers for itself owes nothing for it.
func TestNobodyPaysForTimeThatNobodyElseWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan string, 1000)
		l := loop.New("test", 1, func(ctx context.Context, key string) error {
			_ = pause(ctx, 10*time.Millisecond)
			done <- key
			return nil
		})
		l.By(tenant)
		stop := start(t.Context(), l)
		for n := range 500 { // five seconds
			l.Add(fmt.Sprint("busy/", n))
			<-done
		}
		for n := range 100 {
			l.Add(fmt.Sprint("other/", n))
		}
		l.Add("busy/again")
		for n := 0; ; n++ {
			if key := <-done; tenant(key) == "busy" {
				if n > 2 {
					t.Errorf("%d keys of another came first", n)
				}
				break
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
