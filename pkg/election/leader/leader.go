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

// Leader leads in terms, once: between Start and Stop, or for as long as Run lasts.
type Leader struct {
	cfg     Config
	clients *clients
	elector *election.Elector
	probe   *detect.Detector // nil: there is none
	within  time.Duration    // how long an orderly end takes at most
	claim   election.Config  // what the server has to prove, if it says Fenced

	mu      sync.Mutex
	began   bool
	stopped bool          // Stop was called
	end     func()        // asks what Start began to end; nil before
	done    chan struct{} // closed when that has ended; nil before Start
	err     error         // why it has; set before done is closed
}

// New returns a Leader, and starts nothing. It copies config. If cfg says nothing of this process's address, it may ask
// for the address of the server's name.
func New(config *rest.Config, cfg Config) (*Leader, error) {
	if config == nil {
		return nil, errNoConfig
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	clients, err := newClients(config)
	if err != nil {
		return nil, err
	}
	l := &Leader{cfg: cfg, clients: clients}
	e := cfg.election()
	if e.Replica == "" {
		if e.Replica, err = newReplica(); err != nil {
			return nil, err
		}
		e.Instance = e.Replica
	}
	e.Client, e.Candidates = clients.leases.Leases(cfg.Namespace), clients.candidates.LeaseCandidates(cfg.Namespace)
	if cfg.probes() {
		if l.probe, err = newProbe(config, cfg, e.Replica); err != nil {
			return nil, err
		}
		e.Detector = l.probe
	}
	if cfg.Adjust != nil {
		cfg.Adjust(&e)
	}
	l.claim = e
	// whichever way its Leases go, its writes go through the API
	l.claim.Client = clients.leases.Leases(e.Namespace)
	clients.tokens = e.Fenced || e.Cluster != ""
	if l.elector, err = election.New(e); err != nil {
		return nil, fmt.Errorf("leader: Config: %w", err)
	}
	l.within = e.EndTimeout()
	return l, nil
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

// Elector returns what elects this process, to ask for its Status and to step down. Do not call its Run.
func (l *Leader) Elector() *election.Elector { return l.elector }

// Hold says in the Status of the elector what keeps this process from the election, for who waits for that before Run:
// see election.Elector.Hold.
func (l *Leader) Hold(why string) { l.elector.Hold(why) }

// errBegan is the error of a second Start or Run.
var errBegan = errors.New("leader: this Leader was started before: make another with New")

// Run leads, again and again, until ctx ends, and returns context.Cause(ctx), or an error that wraps election.ErrExit
// if lead returned one, or an error that says what is wrong with this process's Config, which only the server could
// show. It returns when everything has ended, so not before lead does: what must end anyway calls Start and Stop. The
// server must answer for a while after the end of ctx, so that the lease can be released: see
// election.Config.EndTimeout.
func (l *Leader) Run(ctx context.Context, lead election.LeadFunc) error {
	l.mu.Lock()
	again := l.began
	l.began = true
	l.mu.Unlock()
	if again {
		return errBegan
	}
	return l.run(ctx, lead)
}

func (l *Leader) run(ctx context.Context, lead election.LeadFunc) error {
	defer l.clients.close()
	lead = checksCluster(l.claim, lead)
	if l.probe != nil {
		defer l.probe.Close()
	}
	if l.cfg.Ready != nil {
		if err := l.cfg.Ready(ctx); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("leader: not ready to lead: %w", err)
		}
	}
	if l.claim.Fenced {
		if err := ProveFenced(ctx, l.claim, l.elector.Hold); err != nil {
			return err
		}
	}
	if l.probe == nil {
		klog.FromContext(ctx).Info("This process has no probe: after a crash of the leader, standbys wait for the lease to expire, unless they share a directory with it", "lease", l.cfg.Namespace+"/"+l.cfg.Name)
		return l.elector.Run(ctx, lead)
	}
	// last, and closed when nothing of a term is left: see detect.Detector.Open
	if err := open(ctx, l.probe, l.cfg, l.clients, l.elector.Hold); err != nil {
		return err
	}
	return l.elector.Run(ctx, lead)
}

// Start does what Run does, in the background, until Stop. ctx gives the logger and values; its end does not end
// anything, because the context of an API server's hooks ends when the server has stopped to answer, which is too late
// to release the lease. Start returns at once, also if the server does not answer yet. After Stop it does nothing.
func (l *Leader) Start(ctx context.Context, lead election.LeadFunc) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.stopped:
		return nil
	case l.began:
		return errBegan
	}
	ctx, end := context.WithCancelCause(context.WithoutCancel(ctx))
	l.began, l.done, l.end = true, make(chan struct{}), func() { end(errStopped) }
	go func() {
		defer close(l.done)
		err := l.run(ctx, lead)
		end(nil)
		if errors.Is(err, errStopped) {
			return
		}
		l.err = err
		klog.FromContext(ctx).Error(err, "The election has ended: this process leads no more", "lease", l.cfg.Namespace+"/"+l.cfg.Name)
	}()
	return nil
}

var errStopped = errors.New("leader: Stop was called")

// EndTimeout returns how long Stop takes at most: election.Config.EndTimeout, and somewhat longer than the work may
// take to stop.
func (l *Leader) EndTimeout() time.Duration { return l.within }

// Done returns a channel that is closed when what Start began has ended, by Stop or by itself. It is nil before Start.
func (l *Leader) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done
}

// Stop ends the term, if there is one, and releases the lease, and returns when nothing is left. The server must answer
// until then: in an API server, call it in a pre-shutdown hook. It returns an error if the election had ended by
// itself, or if the work of the term has not stopped in time. In the latter case the process should end: the lease is
// left to expire.
//
// Any goroutine may call it, at any time and any number of times. Before Start it prevents that Start does anything.
func (l *Leader) Stop() error {
	l.mu.Lock()
	end, done := l.end, l.done
	l.stopped = true
	l.mu.Unlock()
	if done == nil {
		return nil
	}
	end()
	timer := time.NewTimer(l.within)
	defer timer.Stop()
	select {
	case <-done:
		return l.err
	case <-timer.C:
		return fmt.Errorf("leader: the work of the term has not stopped within %v: end this process, and the lease %s/%s expires", l.within, l.cfg.Namespace, l.cfg.Name)
	}
}
