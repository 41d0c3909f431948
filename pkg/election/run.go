package election

import (
	"context"
	"sync"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// run is one call of Elector.Run. What it knows of other processes ends with it, because it would be out of date in the
// next call.
type run struct {
	*Elector

	// start sets it; it does not change until the end.
	mode mode

	// Owned by the goroutine of Run.
	pace   pace
	memory memory
	// candidate is, in mode coordinated, the holder identity of this process's LeaseCandidate and of its next term.
	// Otherwise empty.
	candidate string
}

// loop stands by, campaigns and leads, in turn, until ctx ends or lead asks to exit.
func (r *run) loop(ctx context.Context, lead LeadFunc) error {
	for {
		d, err := r.standBy(ctx)
		if err != nil {
			return err
		}
		r.becomeCampaigning(ctx, d.reason)
		c, err := r.campaign(ctx, d)
		if err != nil {
			r.becomeStandby()
			continue
		}
		if err := r.serve(ctx, c, d.reason, lead); err != nil {
			return err
		}
	}
}

// introduce says in the log what is special about this process, and locks its file.
func (r *run) introduce(ctx context.Context) {
	log := klog.FromContext(ctx)
	if r.cfg.unelected {
		log.Info("Running without leader election: this process does not notice others that do so. If there is more than one, enable leader election in each")
		return
	}
	if r.cfg.SucceedUnfenced {
		log.Info("Unfenced succession is allowed: this process, and holders that allow it too, are succeeded before their lease expires when their address refuses connections. What a leader does must bear that two work for a moment")
	}
	if r.presence != nil { // it does the rest
		return
	}
	if err := r.processLock.enter(); err != nil {
		log.Error(err, "Cannot lock a file in the directory of replicas: if this process is killed, its successor has to wait for the lease to expire")
	}
}

// start starts what lasts as long as Run. It returns a function that ends and joins that.
func (r *run) start(ctx context.Context) (stop func()) {
	r.memory.told = r.past.told
	r.showTold(r.memory.told)
	r.mu.Lock()
	r.state = standingBy
	r.view, r.peer = lease.NewView(klog.FromContext(ctx), r.identities.ours), newPeer()
	r.watcher = lease.NewWatcher(r.api, r.view, r.cfg.RetryPeriod)
	r.mu.Unlock()
	r.pace = r.past.pace
	r.pace.retryPeriod = r.cfg.RetryPeriod
	r.introduce(ctx)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the watch must still see the release
	var background sync.WaitGroup
	background.Go(func() { r.watcher.Run(ctx) })
	if r.cfg.Changed != nil {
		background.Go(func() { r.tellChanges(ctx) })
	}
	background.Go(func() { r.watchOwner(ctx) })
	r.mode = withoutElection{} // set after processLock.enter: the mode's objects name the lock file
	if !r.cfg.unelected {
		r.mode = r.cfg.kind().begin(r.Elector)
	}
	background.Go(func() { r.mode.run(ctx) })
	if r.cfg.Detector != nil {
		background.Go(func() { r.followHolder(ctx) })
	}
	return func() {
		cancel()
		background.Wait()
		if r.presence == nil {
			r.processLock.leave(r.past.unsure)
		}
		r.past.told, r.past.pace = r.memory.told, r.pace
		r.showTold(announcements{})
		r.mu.Lock()
		defer r.mu.Unlock()
		r.state = stopped
	}
}
