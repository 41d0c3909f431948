package election

import (
	"context"
	"sync"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// run is one call of Elector.Run. What it knows of others ends with it: it would be old by the next call.
type run struct {
	*Elector

	// Made by start, the same until the end.
	watcher *lease.Watcher
	mode    mode

	// Owned by the goroutine of Run.
	state  state
	pace   pace
	memory memory
	// candidate is the identity under which this process stands, in mode coordinated, and in its term; empty otherwise.
	candidate string
}

// loop stands by, campaigns and leads, again and again.
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

// start brings up what lasts as long as Run, and returns what takes it down and joins it.
func (r *run) start(ctx context.Context) (stop func()) {
	r.state, r.memory.told = standingBy, r.past.told
	r.mu.Lock()
	r.view, r.peer = lease.NewView(klog.FromContext(ctx), r.identities.ours), newPeer()
	r.mu.Unlock()
	r.watcher = lease.NewWatcher(r.api, r.view, r.cfg.RetryPeriod)
	r.pace = pace{retryPeriod: r.cfg.RetryPeriod}
	if r.cfg.unelected {
		klog.FromContext(ctx).Info("Leading without election: other processes that do so are not detected. If there is more than one, let each stand for election")
	} else if err := r.processLock.enter(); err != nil {
		klog.FromContext(ctx).Error(err, "If this process is killed, its successor has to wait for the lease to expire")
	}

	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the release is seen too
	var followers sync.WaitGroup
	followers.Go(func() { r.watcher.Run(ctx) })
	r.mode = withoutElection{} // made after the replica's file, of which its objects tell
	if !r.cfg.unelected {
		followers.Go(func() { r.watchOwner(ctx) })
		r.mode = r.cfg.kind().begin(r.Elector)
	}
	followers.Go(func() { r.mode.run(ctx) })
	if r.cfg.Detector != nil {
		followers.Go(func() { r.followHolder(ctx) })
	}
	return func() {
		cancel()
		followers.Wait()
		r.processLock.leave(r.past.unsure)
		r.past.told = r.memory.told
	}
}
