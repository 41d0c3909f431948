package leader

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/detect"
)

// process is what this process needs to stand for election, for one Lease or for many, and how long that lasts.
type process struct {
	cfg     Config
	clients *clients
	probe   *detect.Detector // nil: there is none
	within  time.Duration    // how long an orderly end takes at most
	claim   election.Config  // what the server has to prove, if it says Fenced
	hold    func(why string) // says in the Status what keeps this process from the election

	mu      sync.Mutex
	began   bool
	stopped bool          // Stop was called
	end     func()        // asks what Start began to end; nil before
	done    chan struct{} // closed when that has ended; nil before Start
	err     error         // why it has; set before done is closed
}

// prepare makes what the Config says, starts nothing, and returns the election.Config that follows.
func (p *process) prepare(config *rest.Config, cfg Config) (e election.Config, err error) {
	if config == nil {
		return e, errNoConfig
	}
	if err := cfg.validate(); err != nil {
		return e, err
	}
	p.cfg = cfg
	if p.clients, err = newClients(config); err != nil {
		return e, err
	}
	e = cfg.election()
	if e.Replica == "" {
		if e.Replica, err = newReplica(); err != nil {
			return e, err
		}
		e.Instance = e.Replica
	}
	e.Client, e.Candidates = p.clients.leases.Leases(cfg.Namespace), p.clients.candidates.LeaseCandidates(cfg.Namespace)
	if cfg.probes() {
		if p.probe, err = newProbe(config, cfg, e.Replica); err != nil {
			return e, err
		}
		e.Detector = p.probe
	}
	if cfg.Adjust != nil {
		cfg.Adjust(&e)
	}
	p.claim = e
	// whichever way its Leases go, its writes go through the API
	p.claim.Client = p.clients.leases.Leases(e.Namespace)
	p.clients.tokens = e.Fenced || e.Cluster != ""
	return e, nil
}

var errNoConfig = errors.New("leader: the rest.Config is nil: give the one with which this program reaches the server of the Lease")

// newReplica returns a name for this process.
func newReplica() (string, error) {
	hostname, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("leader: no host name for Config.Replica, set it: %w", err)
	}
	return hostname + "_" + uuid.NewString()[:8], nil
}

// errBegan is the error of a second Start or Run.
var errBegan = errors.New("leader: this Leader was started before: make another with New")

// runOnce makes this process stand for election by elect, once it can, until that returns.
func (p *process) runOnce(ctx context.Context, elect func(context.Context) error) error {
	p.mu.Lock()
	again := p.began
	p.began = true
	p.mu.Unlock()
	if again {
		return errBegan
	}
	return p.run(ctx, elect)
}

func (p *process) run(ctx context.Context, elect func(context.Context) error) error {
	defer p.clients.close()
	if p.probe != nil {
		defer p.probe.Close()
	}
	if p.cfg.Ready != nil {
		if err := p.cfg.Ready(ctx); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("leader: not ready to lead: %w", err)
		}
	}
	if p.claim.Fenced {
		if err := ProveFenced(ctx, p.claim, p.hold); err != nil {
			return err
		}
	}
	if p.probe == nil {
		klog.FromContext(ctx).Info("This process has no probe: after a crash of the leader, standbys wait for the lease to expire, unless they share a directory with it", "lease", p.cfg.Namespace+"/"+p.cfg.Name)
		return elect(ctx)
	}
	// last, and closed when nothing of a term is left: see detect.Detector.Open
	if err := open(ctx, p.probe, p.cfg, p.clients, p.hold); err != nil {
		return err
	}
	return elect(ctx)
}

// start does what runOnce does, in the background, until Stop.
func (p *process) start(ctx context.Context, elect func(context.Context) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.stopped:
		return nil
	case p.began:
		return errBegan
	}
	ctx, end := context.WithCancelCause(context.WithoutCancel(ctx))
	p.began, p.done, p.end = true, make(chan struct{}), func() { end(errStopped) }
	go func() {
		defer close(p.done)
		err := p.run(ctx, elect)
		end(nil)
		if errors.Is(err, errStopped) {
			return
		}
		p.err = err
		klog.FromContext(ctx).Error(err, "The election has ended: this process leads no more", "lease", p.cfg.Namespace+"/"+p.cfg.Name)
	}()
	return nil
}

var errStopped = errors.New("leader: Stop was called")

// hasStopped returns a channel that is closed when what start began has ended, by stop or by itself. It is nil before.
func (p *process) hasStopped() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// stop ends what start began: see Leader.Stop.
func (p *process) stop() error {
	p.mu.Lock()
	end, done := p.end, p.done
	p.stopped = true
	p.mu.Unlock()
	if done == nil {
		return nil
	}
	end()
	timer := time.NewTimer(p.within)
	defer timer.Stop()
	select {
	case <-done:
		return p.err
	case <-timer.C:
		return fmt.Errorf("leader: the work of the term has not stopped within %v: end this process, and the lease %s/%s expires", p.within, p.cfg.Namespace, p.cfg.Name)
	}
}
