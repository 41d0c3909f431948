package election

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// Elector makes this process lead in terms, under one Lease, for as long as Run lasts. One process may have several,
// each for a Lease of its own.
//
//	              the lease can be won
//	standing by -----------------------> campaigning
//	  ^  ^  ^                              |     |
//	  |  |  +--------- not acquired -------+     | acquired: a term begins
//	  |  |                                       v
//	  |  |                                    leading
//	  |  |                                       | its context ends with a Cause
//	  |  |     joined; RunOrDie joined;          v
//	  |  +----- released unless lost -------- draining
//	  |                                          | drain timeout: RunOrDie cancelled
//	  |        joined; the holder cleared        v  and joined, nothing released
//	  +----------- unless lost ------------- quarantined
//
// Standing by costs a watch of the Lease and a read a minute, and what Config.Detector does. The process campaigns when
// there is no Lease, when nobody holds it, when it has expired, and when its holder is known or, if Config.Detection says
// so, suspected to be dead. The clock is this process's own: a lease has expired when holder, epoch and renewal have stood
// unchanged for its duration since this process first saw them.
type Elector struct {
	cfg         Config
	api         lease.API
	identities  *identities
	processLock *processLock
	running     atomic.Bool
	// stands is set while this process stands by: it can succeed a leader.
	stands atomic.Bool
	born   time.Time

	mu sync.Mutex
	// view and peer are made by Run, at its beginning; the same for as long as it lasts.
	view *lease.View
	peer *peer
	// current is the term that has not been told to end; its work is nil if there is none. holder outlives it: the identity of
	// the last term.
	current struct {
		term   Term
		work   *work
		holder string
	}

	past past
}

// past is what one call of Run leaves to the next. It is owned by the goroutine of Run.
type past struct {
	told said
	// unsure is set while a write of ours may have been committed without our knowing.
	unsure bool
	// last is the term that ended last: who held the lease in it, and how it ended.
	last struct {
		holder string
		epoch  int64
		ending
	}
}

// New validates cfg and returns an Elector that has started nothing yet. From then on the process's metrics say that it
// does not lead.
func New(cfg Config) (*Elector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Client == nil {
		return nil, errors.New("election: Config.Client is nil: give it a client for the Lease's namespace")
	}
	if cfg.Detection == DetectSuspect && !cfg.Fenced {
		return nil, errors.New("election: Config.Detection is suspect: that is safe only if stale writes are refused, see Config.Fenced")
	}
	if cfg.Mode == nil {
		cfg.Mode = Renewed{}
	}
	if cfg.Mode.Electing() && cfg.Candidates == nil {
		return nil, fmt.Errorf("election: Config.Candidates is nil: mode %s needs a client for the LeaseCandidates of the Lease's namespace", cfg.Mode.Name())
	}
	if cfg.Detection == DetectOff {
		cfg.Detector = nil
	}
	if cfg.Hostname == "" {
		hostname, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("no hostname for the holder identity, set Config.Hostname: %w", err)
		}
		cfg.Hostname = hostname
	}
	if err := registerMetrics(); err != nil {
		return nil, fmt.Errorf("do not import component-base/metrics/prometheus/clientgo beside this package: %w", err)
	}
	process := newProcessLock(cfg.ReplicasDirectory)
	if cfg.Replica == "" {
		cfg.Replica = cfg.Hostname + "_" + process.process[:8]
	}
	e := &Elector{
		cfg:         cfg,
		api:         lease.API{Client: cfg.Client, Namespace: cfg.Namespace, Name: cfg.Name, Timeout: cfg.requestTimeout()},
		identities:  newIdentities(cfg.Hostname, cfg.kind().objects),
		processLock: process,
		born:        time.Now(),
	}
	show(e)
	return e, nil
}

// NewUnelected returns an Elector of a process that is no candidate: it campaigns by beginning a term without a lease, and without an
// epoch, whenever nobody holds the lease, and ends it when somebody does. Two such processes do not detect each other. Config's Mode,
// Priority and Detector do not matter. Errors are New's.
func NewUnelected(cfg Config) (*Elector, error) {
	cfg.unelected, cfg.Mode, cfg.Priority, cfg.Preempt, cfg.Detector = true, Renewed{}, 0, false, nil
	return New(cfg)
}

// ErrNotLeading and ErrNoStandby are returned by StepDown.
var (
	ErrNotLeading = errors.New("this process does not lead")
	ErrNoStandby  = errors.New("there is no such standby")
)

// StepDown ends this process's term on request, with the reason on the Lease, and returns the term, which may not have
// ended yet; ErrNotLeading if there is none. The process campaigns again after one retry period, so that another can
// lead.
//
// If to is not empty, the replica of that name (Config.Replica) is preferred: the other standbys leave it a head start of
// a quarter of the retry period. With a Detector it must be one that follows this process, or the answer is ErrNoStandby
// and the term goes on; without one only this process's own name is known to be wrong.
//
// It may be called at any time, from any goroutine.
func (e *Elector) StepDown(reason, to string) (Term, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current.work == nil {
		return Term{}, ErrNotLeading
	}
	if err := checkStandby(e.cfg, to, e.cfg.followers()); err != nil {
		return Term{}, err
	}
	e.current.work.fail(because(StepDown, "%w", &request{reason: reason, to: to}))
	return e.current.term, nil
}

// checkStandby returns an error that is ErrNoStandby if the replica of that name cannot be preferred. standbys are those who follow
// this process.
func checkStandby(cfg Config, name string, standbys []Standby) error {
	switch {
	case name == "":
		return nil
	case cfg.kind().electing:
		return fmt.Errorf("%w that could be preferred: in mode %s the best candidate is elected", ErrNoStandby, cfg.Mode.Name())
	case name == cfg.Replica:
		return fmt.Errorf("%w: %q is this process, which leads", ErrNoStandby, name)
	case cfg.Detector == nil:
		return nil
	}
	var names []string
	for _, standby := range standbys {
		if standby.Replica == name {
			return nil
		}
		names = append(names, standby.Replica)
	}
	return fmt.Errorf("%w: %q does not follow this leader; those that do: %q", ErrNoStandby, name, slices.Compact(names))
}

// known is the epoch on the Lease and for how long nobody was known to hold an unexpired lease, as of now. A holder that is not
// accounted for counts for nobody.
func (e *Elector) known(now time.Time) (epoch int64, leaderless time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	since := e.born
	if e.cfg.unelected && e.current.work != nil {
		since = now // it leads itself, without a lease
	} else if e.view != nil {
		seen, _ := e.view.Latest()
		epoch = seen.Epoch()
		news, _ := e.peer.latest(Contact(seen.Presence().Contact))
		_, due := situation{seen: seen, holder: knowledge{mine: e.identities.ours(seen.Holder()), news: news}}.unaccounted(e.cfg)
		switch {
		case !seen.Known():
		case seen.Holder() == "":
			since = seen.Since
		case !due.IsZero():
			since = due
		case seen.HeldForLife():
			since = now
		default:
			since = seen.Expiry(e.cfg.LeaseDuration)
		}
	}
	return epoch, max(0, now.Sub(since))
}

// Run calls lead once per term, one term after the other, until ctx ends or lead asks for an exit. Losing leadership
// never ends it: it returns only context.Cause(ctx) or an error that wraps ErrExit, and only when everything it started
// has ended, the last call of lead included, and the lease is released if it was held and could be.
//
// After ctx has ended the client must still work for the drain timeout and half the renew deadline, which the drain and
// the release may take. A call of lead that does not return keeps Run from returning.
//
// Run may be called again after it has returned, but not twice at a time.
func (e *Elector) Run(ctx context.Context, lead LeadFunc) error {
	if !e.running.CompareAndSwap(false, true) {
		panic("election: Elector.Run called while it is running")
	}
	defer e.running.Store(false)
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("lease", e.api.Namespace+"/"+e.api.Name))
	r := &run{Elector: e}
	defer r.start(ctx)()
	defer r.clearOwn(ctx)
	return r.loop(ctx, lead)
}
