package perterm

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"runtime/pprof"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/regent-project/regent/pkg/election/join"
)

// label is the profiler label that has the name of a runnable on its goroutines, so that reports of late ones show it.
const label = "runnable"

// add returns what the manager of the term is given for a runnable, or why a term does not have it.
func (t *tenancy) add(r manager.Runnable) (manager.Runnable, error) {
	w := &runnable{r, t, nameOf(reflect.ValueOf(r))}
	if _, ok := r.(webhook.Server); ok {
		return nil, fmt.Errorf("webhook server %s: %w", w.name, errProcess)
	}
	if c, ok := r.(hasCache); ok { // a cluster, which a manager knows by this method
		return &cluster{w, c}, nil
	}
	if l, ok := r.(manager.LeaderElectionRunnable); ok && !l.NeedLeaderElection() {
		return nil, fmt.Errorf("%s says that it needs no leader election: %w", w.name, errProcess)
	}
	return w, nil
}

type hasCache interface{ GetCache() cache.Cache }

type cluster struct {
	*runnable
	of hasCache
}

// GetCache says that this is a runnable with a cache.
func (c *cluster) GetCache() cache.Cache { return &boundedCache{c.of.GetCache(), c.runnable} }

// boundedCache is the cache of a cluster in a term. A manager waits for it without bound, and at the end of the term,
// too.
type boundedCache struct {
	cache.Cache
	r *runnable
}

// WaitForCacheSync fails the term if the cache does not sync in time. At the end of the term it returns true, as long
// as ctx goes on: see termCache.
func (a *boundedCache) WaitForCacheSync(ctx context.Context) bool {
	t := a.r.t
	bounded, cancel := context.WithTimeout(ctx, t.loan.patience)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)() //nolint:contextcheck // the end of the term
	if a.Cache.WaitForCacheSync(bounded) {
		return true
	}
	if ctx.Err() != nil {
		return false
	}
	t.fail(fmt.Errorf("the cache of %s has not synced within %v: see whether its server answers, and whether this account may list and watch there", a.r.name, t.loan.patience))
	<-t.ctx.Done()
	return true
}

// runnable is one of a term.
type runnable struct {
	manager.Runnable
	t    *tenancy
	name string
}

// Start runs the runnable. If it fails, or panics, the term ends at once: the manager returns only when all others have
// ended, and the term would lead on meanwhile.
func (r *runnable) Start(ctx context.Context) error {
	select {
	case <-r.t.ctx.Done():
		return nil // the term was over before the manager had started it
	default:
	}
	err := contain(func() (err error) {
		r.t.labelled(ctx, r.name, func(ctx context.Context) { err = r.Runnable.Start(ctx) })
		return err
	})
	if _, panicked := errors.AsType[*join.Panic](err); panicked {
		err = fmt.Errorf("runnable %s: %w", r.name, err)
	}
	if err != nil {
		r.t.fail(err)
	}
	return err
}

// labelled calls f with the labels of the term and the name of a runnable, also if ctx was made by the program
// (manager.Options.BaseContext): by its labels package join knows what belongs to the term.
func (t *tenancy) labelled(ctx context.Context, name string, f func(ctx context.Context)) {
	labels := []string{label, name}
	pprof.ForLabels(t.ctx, func(key, value string) bool { //nolint:contextcheck // the labels of the term, whatever ctx is
		labels = append(labels, key, value)
		return true
	})
	pprof.Do(ctx, pprof.Labels(labels...), f)
}

// contain calls f, and turns its panic into a *join.Panic.
func contain(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &join.Panic{Value: value, Stack: debug.Stack()}
		}
	}()
	return f()
}

// nameOf returns the type of a runnable, and its field Name if there is one, as controllers have.
func nameOf(v reflect.Value) string {
	name := v.Type().String()
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() == reflect.Struct {
		if field := v.FieldByName("Name"); field.IsValid() && field.Kind() == reflect.String && field.String() != "" {
			name += " " + field.String()
		}
	}
	return name
}
