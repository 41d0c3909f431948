package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/supervisor"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/detect"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server/etcd"
	"github.com/regent-project/regent/pkg/server/storage"
)

// run is a replica that runs. There are two lifetimes in it: what lives as long as the process serves is part of
// process, what ends with a term is below the election.
//
//	ctx ends ──> pre-shutdown hook: ask and join election ──> ask and join process ──> listener closes ──> requests
//	finish ──> join election, process ──> storage closes ──> etcd stops
type run struct {
	*Server

	// ctx ends when the replica is to stop; stop ends it.
	ctx     context.Context
	stop    context.CancelCauseFunc
	failure atomic.Pointer[error]

	process, election         parts
	late                      lateControllers
	poison                    poison
	stopProcess, stopElection context.CancelFunc
	processCtx, electionCtx   context.Context

	// started is closed when the API server serves, shardKnown when etcd's shard is known to be ours.
	started, shardKnown chan struct{}
	// drainBegan is when the listener was about to close; set by the pre-shutdown hook, before the API server returns.
	drainBegan time.Time

	host     *rest.Config
	replica  *loopback
	spare    spare
	recorder *recorder
	elector  *election.Elector
	// electionsRecorder and elections are for the Lease of the electing controllers, where that is another.
	electionsRecorder *recorder
	elections         *election.Elector
	probe             *supervisor.Probe
	// checkToken is set before the API serves.
	checkToken checkToken
	etcd       *etcdCheck
	shard      *shardCheck
	informers  controllers.Informers
	resources  []controllers.Resource
}

func newRun(s *Server, ctx context.Context) *run {
	r := &run{
		Server: s, started: make(chan struct{}), shardKnown: make(chan struct{}), host: s.generic.LoopbackClientConfig, probe: supervisor.NewProbe(),
		spare: spare{host: s.generic.LoopbackClientConfig, token: s.tokens.leader, warmer: s.tokens.replica},
	}
	r.ctx, r.stop = context.WithCancelCause(ctx)
	lasting := context.WithoutCancel(ctx)
	r.processCtx, r.stopProcess = context.WithCancel(lasting)
	r.electionCtx, r.stopElection = context.WithCancel(lasting)
	failed := func(name string, err error) { r.fail(fmt.Errorf("%s: %w", name, err)) }
	r.process.failed, r.election.failed = failed, failed
	return r
}

// fail stops the replica for a reason of its own, of which the first counts, even if it was asked to stop before.
func (r *run) fail(err error) {
	if r.failure.CompareAndSwap(nil, &err) {
		r.stop(err)
		return
	}
	klog.FromContext(r.ctx).V(2).Info("Failed, while the replica stops for another failure", "err", err)
}

// fault returns why the replica stops by itself, nil if nothing failed.
func (r *run) fault() error {
	if err := r.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// running names what has not ended.
func (r *run) running() []string {
	late := slices.Concat(r.late.names(), r.election.Running(), r.process.Running())
	if len(late) == 0 {
		late = []string{"requests in flight"}
	}
	return late
}

// all starts everything, waits for ctx to end, and returns when everything has ended. What fails to start is undone in
// reverse.
func (r *run) all() error {
	defer func() { _ = r.generic.SecureServing.Listener.Close() }()
	defer r.stop(nil)

	defer r.stopProcess() // also of what fails before anything else is started
	encryption, err := readEncryption(r.processCtx, r.cfg.EncryptionConfigFile, r.generic.APIServerID)
	if err != nil {
		return err
	}
	transport := r.cfg.Etcd
	if r.cfg.EmbeddedEtcd != nil {
		embedded, err := etcd.Start(r.ctx, *r.cfg.EmbeddedEtcd)
		if err != nil && r.ctx.Err() != nil {
			return r.fault()
		}
		if err != nil {
			return err
		}
		defer embedded.Close()
		transport = embedded.Transport()
		r.process.Go("embedded etcd", func() error { return r.observe(embedded) })
	}
	// Whatever way this function ends, all parts have ended before storage closes.
	served, err := newServed(transport, r.cfg, encryption)
	if err != nil {
		return err
	}
	defer served.close()
	defer r.joinAll()

	if r.replica, err = newLoopback(r.host, r.tokens.replica); err != nil {
		return err
	}
	defer r.replica.close()
	r.replica.through(r.cfg.informerTransport)
	api, err := r.newAPI(served)
	if err != nil {
		return err
	}
	r.startProcess()
	r.process.Go("etcd's history", func() error {
		r.followHistory(served.storage)
		return nil
	})
	r.process.Go("etcd's members", func() error { return served.storage.WatchMembers(r.processCtx) })
	if err := r.startElection(); err != nil {
		return err
	}
	if err := api.PrepareRun().RunWithContext(r.ctx); err != nil {
		return errors.Join(r.fault(), fmt.Errorf("the API server stopped: %w", err))
	}
	if !r.drainBegan.IsZero() {
		klog.FromContext(r.ctx).Info("Requests have finished", "after", time.Since(r.drainBegan).Round(time.Millisecond))
	}
	return r.fault()
}

// startProcess starts what lives as long as the process serves.
func (r *run) startProcess() {
	r.process.Go("etcd's observer", func() error {
		tellOfEtcd(r.processCtx, r.etcd.observe)
		return nil
	})
	r.process.Go("recorder of events", func() error {
		r.recorder.run(r.processCtx)
		return nil
	})
	if r.electsItself() {
		r.process.Go("recorder of events about elections", func() error {
			r.electionsRecorder.run(r.processCtx)
			return nil
		})
	}
	r.process.Go("shard record", func() error {
		if err := r.shard.Run(r.processCtx); err != nil {
			return err
		}
		close(r.shardKnown)
		return nil
	})
	if r.cfg.Election.Enabled {
		r.process.Go("the next term's connection", func() error {
			r.spare.run(r.processCtx, r.started)
			return nil
		})
	}
	runInformers(r.processCtx, &r.process, r.informers)
	if set := r.cfg.Registry.Scoped(controllers.EveryReplica); len(set) > 0 {
		r.process.Go("every-replica controllers", func() error { return r.runEveryReplica(set) })
	}
}

// startElection starts the election. It owns its connections, on which nothing else travels.
func (r *run) startElection() error {
	lease, err := newLoopbackIn(r.host, r.tokens.replica, clusters.SystemAdmin.String())
	if err != nil {
		return err
	}
	lease.http.Transport = fence.Transport(fence.FromContext)(lease.http.Transport)
	clients, err := lease.clients()
	if err != nil {
		return err
	}
	cfg := r.cfg.Election
	cfg.Cluster = clusters.SystemAdmin
	cfg.ReplicasDirectory = filepath.Join(r.cfg.RootDirectory, replicasDirectory)
	cfg.Client = clients.Kube.CoordinationV1().Leases(cfg.Namespace)
	cfg.Candidates = clients.Kube.CoordinationV1beta1().LeaseCandidates(cfg.Namespace)
	cfg.BinaryVersion = BuildVersion()
	if cfg.EmulationVersion == "" {
		cfg.EmulationVersion = cfg.BinaryVersion
	}
	cfg.Fenced = r.cfg.Fencing != FencingWarn
	cfg.Notify = r.recorder.notify
	cfg.Replica = r.name
	cfg.ForgetCommand = forgetCommand
	probe, err := r.newProbe(cfg)
	if err != nil {
		return err
	}
	if probe != nil {
		cfg.Detector = probe
	}
	if p := r.cfg.Policies; p.Default != "" || len(p.Controllers) > 0 {
		klog.FromContext(r.ctx).Info("Controllers have failure policies", "default", p.Of(""), "controllers", p.Controllers)
	}
	if r.elector, err = election.New(cfg); err != nil {
		return fmt.Errorf("cannot stand for election: %w", err)
	}
	if r.electsItself() {
		if r.elections, err = election.New(ofElections(cfg, probe, r.electionsRecorder.notify)); err != nil {
			return fmt.Errorf("cannot stand for the election of who elects: %w", err)
		}
	}
	r.election.Go("election", func() error {
		defer lease.close()
		// Who leads must be able to work at once: a replica whose caches are cold would only keep others from it.
		awaited := map[string]<-chan struct{}{"the API server": r.started, "the shard's record": r.shardKnown}
		for name, done := range synced(r.informers) {
			awaited["the informer of "+name] = done
		}
		if !waitFor(r.electionCtx, awaited) {
			return nil
		}
		if probe != nil {
			// Last, and closed when nothing of a term is left.
			if err := probe.Open(r.electionCtx, r.shard.secret); err != nil {
				return err
			}
			defer probe.Close()
		}
		return r.runElectors(r.electionCtx)
	})
	return nil
}

// newProbe returns what learns of a leader's death, and lets others learn of this replica's; nil if that is not wanted.
func (r *run) newProbe(stands election.Config) (*detect.Detector, error) {
	if !stands.Enabled || stands.Detection == election.DetectOff {
		return nil, nil
	}
	cfg := r.cfg.Detect
	cfg.Name, cfg.Replica = stands.Name, r.name
	cfg.Listen = net.JoinHostPort(r.cfg.Serving.BindAddress.String(), strconv.Itoa(r.cfg.ProbePort))
	cfg.Advertise = r.cfg.Advertise.String()
	probe, err := detect.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot make the probe: %w", err)
	}
	return probe, nil
}

// followHistory ends the term, and the election, if etcd goes back. The process serves on, not ready: to end it by itself
// would take all replicas down together.
func (r *run) followHistory(client *storage.Client) {
	select {
	case <-r.processCtx.Done():
	case <-client.WentBack():
		klog.FromContext(r.ctx).Error(client.Fault(), "This replica is not ready any more and stands for no election: restart it")
		r.stopElection()
	}
}

// observe returns etcd's fault, if it stops by itself.
func (r *run) observe(embedded *etcd.Server) error {
	select {
	case <-r.processCtx.Done():
		return nil
	case err := <-embedded.Failed():
		return err
	}
}

// addHooks adds the one hook at either end. The first only says that the API server serves: upstream ends the process
// on a hook's error, and is not ready until it returns. The second ends the term while the lease can still be released.
func (r *run) addHooks(api *genericapiserver.GenericAPIServer) error {
	err := api.AddPostStartHook("regent", func(genericapiserver.PostStartHookContext) error {
		close(r.started)
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot add the post-start hook: %w", err)
	}
	err = api.AddPreShutdownHook("regent", func() error {
		r.askAll(r.cfg.Election.EndTimeout())
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot add the pre-shutdown hook: %w", err)
	}
	return nil
}

// processAllowance is what the pre-shutdown hook allows for the end of what lives as long as the process.
const processAllowance = 3 * time.Second

// askAll asks everything to end, the election first, and waits a bounded time for it.
func (r *run) askAll(electionTime time.Duration) {
	log, began := klog.FromContext(r.ctx), time.Now()
	r.stopElection()
	joined := r.election.JoinFor(electionTime)
	after := time.Since(began)
	delay := max(0, r.cfg.ShutdownDelay-after)
	if joined {
		log.Info("The term and the election have ended, closing the listener", "after", after.Round(time.Millisecond), "in", delay.Round(time.Millisecond))
	} else {
		log.Error(nil, "The term has not ended in time, closing the listener without it", "timeout", electionTime)
	}
	// Until the listener closes, requests are answered from informers that are kept up to date.
	<-time.After(delay)
	r.stopProcess()
	if !r.process.JoinFor(processAllowance) {
		log.Error(nil, "Closing the listener although parts are still running", "parts", r.process.Running())
	}
	// The API server waits for connections, our own among them.
	r.replica.close()
	r.drainBegan = time.Now()
}

// joinAll waits for everything, the election last.
func (r *run) joinAll() {
	r.stopElection()
	r.stopProcess()
	r.process.Join()
	r.election.Join()
}

// firstReminder is how long something is waited for before the log says for what; every further pause is twice as long.
const firstReminder = 10 * time.Second

// waitFor waits for all channels, and reports false if ctx ended before. The log names what takes long.
func waitFor(ctx context.Context, all map[string]<-chan struct{}) bool {
	began, reminder := time.Now(), firstReminder
	timer := time.NewTimer(reminder)
	defer timer.Stop()
	for _, c := range all {
		for waiting := true; waiting; {
			select {
			case <-c:
				waiting = false
			case <-ctx.Done():
				return false
			case <-timer.C:
				klog.FromContext(ctx).Info("Still waiting, before controllers can run", "for", pending(all), "since", time.Since(began).Round(time.Second))
				reminder *= 2
				timer.Reset(reminder)
			}
		}
	}
	return true
}

// pending names the channels that are not closed.
func pending(all map[string]<-chan struct{}) []string {
	var names []string
	for name, c := range all {
		select {
		case <-c:
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
