package server

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/terms"
)

// run is one call of Server.Run: what all its phases share. There are two lifetimes, and no third: process is that of what
// every replica does, election that of campaigns and terms, which ends first.
//
//	ctx ends ──> pre-shutdown hook: ask and join election ──> ask and join process ──> listener closes ──> requests
//	finish ──> join election, process ──> storage closes ──> etcd stops
type run struct {
	*Server

	// ctx ends when the replica is to stop; stop ends it. failure is why it stops by itself.
	ctx     context.Context
	stop    context.CancelCauseFunc
	failure atomic.Pointer[error]

	process, election lifetime
	// serving is closed when the API server serves.
	serving chan struct{}
	// drainBegan is when the listener was about to close. The pre-shutdown hook sets it, before the API server returns.
	drainBegan time.Time
	// terms is set once controllers may run, for running to name those that are late.
	terms atomic.Pointer[terms.Runner]
}

func newRun(s *Server, ctx context.Context) *run {
	r := &run{Server: s, serving: make(chan struct{})}
	r.ctx, r.stop = context.WithCancelCause(ctx)
	for _, l := range []*lifetime{&r.process, &r.election} {
		l.ctx, l.end = context.WithCancelCause(context.WithoutCancel(ctx))
		l.failed = func(name string, err error) { r.fail(fmt.Errorf("%s: %w", name, err)) }
	}
	return r
}

// all is the shape of the product: one registry of controllers (newTerms), one hook at either end of the API server (addHooks), one
// loop (elect). It serves until ctx ends, and returns when everything has ended. Each phase takes what
// the ones before have made; if one fails, those before it are undone in reverse.
func (r *run) all() error {
	defer func() { _ = r.generic.SecureServing.Listener.Close() }()
	defer r.stop(nil)
	defer r.process.end(nil) // also what a phase has started that fails

	store, err := r.openStore()
	if err != nil && r.ctx.Err() != nil {
		return r.fault() // the replica was to stop before etcd had started
	}
	if err != nil {
		return err
	}
	defer store.close()
	defer r.join() // nothing outlives the store
	caches, err := r.newCaches()
	if err != nil {
		return err
	}
	defer caches.client.Close()
	elections, err := r.newElections(caches)
	if err != nil {
		return err
	}
	terms, err := r.newTerms(store, caches, elections)
	if err != nil {
		return err
	}
	api, err := r.newAPI(store, caches, elections, terms)
	if err != nil {
		return err
	}
	if err := r.addHooks(api, caches.client.Close); err != nil {
		return err
	}

	r.start(store, caches, elections, terms)
	if err := api.PrepareRun().RunWithContext(r.ctx); err != nil {
		return errors.Join(r.fault(), fmt.Errorf("the API server stopped: %w", err))
	}
	if !r.drainBegan.IsZero() {
		klog.FromContext(r.ctx).Info("Requests have finished", "after", time.Since(r.drainBegan).Round(time.Millisecond))
	}
	return r.fault()
}

// start starts all goroutines but those of the API server and of a term.
func (r *run) start(store *store, caches *caches, elections *elections, terms *terms.Runner) {
	r.process.Go("embedded etcd", func() error { return store.watchEmbedded(r.process.ctx) })
	r.process.Go("etcd's members", func() error { return store.WatchMembers(r.process.ctx) })
	r.process.Keep("etcd's observer", func(ctx context.Context) { tellOfEtcd(ctx, store.etcd.observe) })
	r.process.Keep("etcd's history", func(ctx context.Context) { r.followHistory(ctx, store) })
	r.process.Go("shard record", func() error { return store.shard.Run(r.process.ctx) })
	r.process.Keep("recorder of events", elections.leaderRecorder.run)
	if elections.electing != nil {
		r.process.Keep("recorder of events about elections", elections.electingRecorder.run)
	}
	runInformers(&r.process, caches.informers)
	if r.cfg.EnableLeaderElection {
		r.process.Keep("the next term's connection", func(ctx context.Context) { terms.KeepConnected(ctx, r.serving) })
	}
	if len(r.cfg.Registry.Scoped(controllers.EveryReplica)) > 0 {
		r.process.Go("every-replica controllers", func() error {
			if !waitFor(r.process.ctx, map[string]<-chan struct{}{"the API server": r.serving, "the shard's record": store.shard.known}) {
				return nil
			}
			return terms.EveryReplica(r.process.ctx)
		})
	}
	r.election.Go("election", func() error {
		defer elections.client.Close()
		return r.elect(store, caches, elections, terms)
	})
}

// addHooks adds the one hook at either end. The post-start hook only says that the API server serves: upstream ends the
// process on a hook's error, and is not ready until the hook returns. The pre-shutdown hook ends the term while the listener is
// still open, because the lease is released through it.
func (r *run) addHooks(api *genericapiserver.GenericAPIServer, closeCaches func()) error {
	err := api.AddPostStartHook("regent", func(genericapiserver.PostStartHookContext) error {
		close(r.serving)
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot add the post-start hook: %w", err)
	}
	err = api.AddPreShutdownHook("regent", func() error {
		r.end(r.cfg.Election.EndTimeout(), closeCaches)
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot add the pre-shutdown hook: %w", err)
	}
	return nil
}

// elect is the one loop: this replica campaigns, leads and campaigns again, until the election is to end.
func (r *run) elect(store *store, caches *caches, e *elections, terms *terms.Runner) error {
	ctx := r.election.ctx
	// A leader must be able to work at once: a replica with cold caches would only keep the lease from the others.
	awaited := map[string]<-chan struct{}{"the API server": r.serving, "the shard's record": store.shard.known}
	for name, done := range synced(caches.informers) {
		awaited["the informer of "+name] = done
	}
	if !waitFor(ctx, awaited) {
		return nil
	}
	// The probe says that this process lives. It opens last, and closes when nothing of a term is left.
	if e.probe != nil {
		if err := e.probe.Open(ctx, store.shard.secret); err != nil {
			return err
		}
		defer e.probe.Close()
	}
	if err := e.run(ctx, terms); !errors.Is(err, context.Cause(ctx)) || errors.Is(err, controllers.ErrExit) {
		return err
	}
	return nil
}
