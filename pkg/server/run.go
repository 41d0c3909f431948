package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/terms"
)

// run is the state that the phases of one Server.Run share. There are two lifetimes: process is that of everything that
// every replica does, election that of campaigns and terms. election ends first.
//
//	ctx ends ──> pre-shutdown hook: ask and join election ──> ask and join process ──> listener closes ──> requests
//	finish ──> join election, process ──> storage closes ──> etcd stops
type run struct {
	server *Server

	// ctx ends when the replica must stop. stop ends it. failure is set if the replica stops because of an error.
	ctx     context.Context
	stop    context.CancelCauseFunc
	failure atomic.Pointer[error]

	process, election lifetime
	// serving is closed once the API server serves.
	serving chan struct{}
	// known gets a message when this replica may know other replicas than before.
	known signal
}

func newRun(s *Server, ctx context.Context) *run {
	r := &run{server: s, serving: make(chan struct{}), known: make(signal, 1)}
	if s.tracing != nil {
		const scope = "github.com/regent-project/regent"
		ctx = controllers.WithTracers(ctx, &controllers.Tracers{Reconciles: s.tracing.Sampled().Tracer(scope), Terms: s.tracing.All().Tracer(scope)})
	}
	r.ctx, r.stop = context.WithCancelCause(ctx)
	for _, l := range []*lifetime{&r.process, &r.election} {
		l.ctx, l.end = context.WithCancelCause(context.WithoutCancel(ctx))
		l.failed = func(name string, err error) { r.fail(fmt.Errorf("%s: %w", name, err)) }
	}
	return r
}

// all shows the shape of the product: one registry of controllers (newTerms), one hook at either end of the API server
// (addHooks), and one loop (elect). It serves until ctx ends, and returns when everything has ended. Each phase takes
// the results of the phases before it, and returns something finished. The exceptions are two: who asks is known only
// once there are caches (Bind), and this process can call itself only once it has an API (newAPI). If a phase fails,
// the earlier ones are undone in reverse order.
func (r *run) all() error {
	s := r.server
	defer s.tracing.Close() // last: all else may have spans
	defer func() { _ = s.generic.SecureServing.Listener.Close() }()
	defer r.stop(nil)
	defer r.process.end(nil) // a phase that fails may have started goroutines
	defer s.identity.Close()

	store, err := s.openStore(r.ctx)
	if err != nil && r.ctx.Err() != nil {
		return r.fault() // the replica was asked to stop while etcd started
	}
	if err != nil {
		return err
	}
	defer store.close()
	defer r.join() // nothing outlives the store
	caches, err := s.newCaches(store)
	if err != nil {
		return err
	}
	defer caches.client.Close()
	defer s.serveBuiltIn(store, caches)()
	defer store.ServeEpochs(caches.epochs())()
	s.identity.Bind(caches.sources())
	elections, err := s.newElections(caches, r.known.tell)
	if err != nil {
		return err
	}
	terms, err := s.newTerms(r.ctx, store, caches, elections, r.fail)
	if err != nil {
		return err
	}
	survey := r.newSurvey(store, caches, elections, terms)
	api, err := s.newAPI(store, caches, elections, terms, survey)
	if err != nil {
		return err
	}
	var drainBegan time.Time
	err = r.addHooks(api, func() {
		r.end(s.cfg.electionEndTimeout())
		// otherwise the API server would wait for the informers' connections, and for webhooks that hang
		caches.client.Close()
		api.customs.EndCalls()
		drainBegan = time.Now()
	})
	if err != nil {
		return err
	}

	r.start(store, caches, elections, terms)
	r.process.Keep("survey", survey.Run)
	if err := r.serve(api); err != nil {
		return errors.Join(r.fault(), fmt.Errorf("the API server stopped: %w", err))
	}
	if !drainBegan.IsZero() {
		klog.FromContext(r.ctx).Info("Requests have finished", "after", time.Since(drainBegan).Round(time.Millisecond))
	}
	return r.fault()
}

// serve serves until the run is asked to stop and requests have finished.
func (r *run) serve(api *api) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.ctx))
	var closing sync.WaitGroup
	defer closing.Wait()
	defer cancel()
	closing.Go(func() { r.server.connections.CloseUnused(ctx) })
	return api.PrepareRun().RunWithContext(r.ctx)
}

// start starts all goroutines, except those of the API server and of terms.
func (r *run) start(store *store, caches *caches, elections *elections, terms *terms.Runner) {
	r.process.Go("embedded etcd", func() error { return store.watchEmbedded(r.process.ctx) })
	r.process.Go("etcd's space", func() error { store.space.Run(r.process.ctx); return nil })
	r.process.Keep("etcd's revisions", store.FollowRevisions)
	r.process.Go("etcd's members", func() error { return store.WatchMembers(r.process.ctx) })
	for name, run := range r.server.identity.Runs() {
		r.process.Keep(name, run)
	}
	r.process.Keep("etcd's observer", store.etcd.Run)
	r.process.Keep("etcd's history", func(ctx context.Context) { r.watchHistory(ctx, store) })
	r.process.Go("shard record", func() error { return store.shard.Run(r.process.ctx) })
	r.process.Go("shard's format", func() error {
		if !waitFor(r.process.ctx, map[string]<-chan struct{}{"the shard's record": store.shard.Confirmation()}) {
			return nil
		}
		return store.shard.KeepReadable(r.process.ctx)
	})
	r.process.Keep("encryption keys", store.watchKeys)
	r.process.Keep("certificates", func(ctx context.Context) { r.server.followKeys(ctx, store, caches) })
	r.process.Keep("recorder of events", elections.leaderRecorder.run)
	if elections.electing != nil {
		r.process.Keep("recorder of events about elections", elections.electingRecorder.run)
	}
	runInformers(&r.process, caches.informers)
	r.process.Keep("custom resources", caches.own.Run)
	r.process.Keep("bound resources", caches.bound.Run)
	if caches.others != nil {
		r.process.Go("reader of other shards", func() error { return caches.others.Run(r.process.ctx) })
	}
	if len(r.server.cfg.Registry.Scoped(controllers.EveryReplica)) > 0 {
		r.process.Go("every-replica controllers", func() error {
			if !waitFor(r.process.ctx, map[string]<-chan struct{}{"the API server": r.serving, "the shard's record": store.shard.Confirmation()}) {
				return nil
			}
			return terms.EveryReplica(r.process.ctx)
		})
	}
	r.election.NameWithin(func() (late []string) {
		for _, name := range terms.Late() {
			late = append(late, fmt.Sprintf("controller %q", name))
		}
		return late
	})
	r.election.Go("election", func() error {
		defer elections.client.Close()
		return r.elect(store, caches, elections, terms)
	})
}

// addHooks adds one hook at each end of the API server. The post-start hook only announces that the server serves:
// upstream ends the process if the hook fails, and is not ready before it returns. The pre-shutdown hook ends the term
// while the API still answers, because the lease is released through it.
func (r *run) addHooks(api *api, end func()) error {
	err := api.AddPostStartHook("regent", func(genericapiserver.PostStartHookContext) error {
		close(r.serving)
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot add the post-start hook: %w", err)
	}
	err = api.AddPreShutdownHook("regent", func() error {
		end()
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot add the pre-shutdown hook: %w", err)
	}
	return nil
}

// elect is the one loop: this replica campaigns, leads and campaigns again, until the election lifetime ends.
func (r *run) elect(store *store, caches *caches, e *elections, terms *terms.Runner) error {
	ctx := r.election.ctx
	// A leader must be able to work at once: with cold caches it would only keep the lease from other replicas.
	awaited := map[string]<-chan struct{}{"the API server": r.serving, "the shard's record": store.shard.Confirmation()}
	for name, done := range synced(caches.informers) {
		awaited["the informer of "+name] = done
	}
	if !waitFor(ctx, awaited) {
		return nil
	}
	// The probe tells other replicas that this process lives. It opens last, and closes when nothing of a term is
	// left.
	if e.probe != nil {
		if err := e.probe.Open(ctx, store.shard.Secret()); err != nil {
			return err
		}
		defer e.probe.Close()
	}
	if err := e.run(ctx, terms); !errors.Is(err, context.Cause(ctx)) || errors.Is(err, controllers.ErrExit) {
		return err
	}
	return nil
}
