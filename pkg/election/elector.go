package election

import (
	"cmp"
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

// Elector makes this process lead in terms under one Lease, for as long as Run lasts. A process may have several
// Electors, one for each Lease.
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
// A standby costs a watch of the Lease and one read a minute, and what Config.Detector does. It campaigns in these
// cases: there is no Lease, nobody holds the lease, the lease has expired, the holder's process is known to be dead, or
// it is suspected to be dead and Config.Detection allows to act on that. Expiry is measured on this process's clock:
// the lease has expired when the process has seen the same holder, epoch and renewal time for the whole lease duration.
type Elector struct {
	cfg         Config
	api         lease.API
	identities  *identities
	processLock *processLock
	running     atomic.Bool
	// standsBy is true while this process stands by, and so can succeed a leader.
	standsBy atomic.Bool
	// What the metrics of these names show.
	leading, quarantined, otherMode, unaccounted atomic.Bool

	born time.Time

	mu    sync.Mutex
	state state
	// view, watcher and peer are made when Run begins, and stay until the next Run.
	view    *lease.View
	watcher *lease.Watcher
	peer    *peer
	// presence keeps the leases of this process; nil in modes that need none. lives watches those of others.
	presence *Presence
	lives    *lives
	// current is the running term. Its work is nil if there is none, or if the term has been told to end. holder is
	// the holder identity of the latest term, and outlives it.
	current struct {
		term   Term
		work   *work
		holder string
	}

	standing lease.Standing         // of the object that the mode makes
	held     atomic.Pointer[string] // what Hold was called with

	cannotWrite atomic.Pointer[string] // why the latest write of the Lease by a standby has failed; nil: it has not

	past past
}

// past is what one call of Run leaves to the next call. Run's goroutine owns it.
type past struct {
	told announcements
	// unsure: a write of this process may have been committed, but its answer was lost.
	unsure bool
	// last is the latest term that has ended: its holder identity, its epoch, and how it ended.
	last struct {
		holder string
		epoch  int64
		ending
	}
	pace pace // so that work which fails in each call of Run is tried as seldom as in one call
}

// New validates cfg and returns an Elector. It starts nothing. From then on the metrics of this process say that it
// does not lead, for whoever registers them: see package metrics.
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
	if (cfg.Detection == DetectCrash || cfg.Detection == DetectSuspect) && cfg.Detector == nil {
		return nil, fmt.Errorf("election: Config.Detection is %s, and Config.Detector is nil: nothing would be detected; leader.OpenProbe makes one", cfg.Detection)
	}
	if cfg.SucceedUnfenced && cfg.Detector == nil {
		return nil, errors.New("election: Config.SucceedUnfenced needs a Config.Detector, which sees whether a process refuses connections")
	}
	if (cfg.Priority != 0 || cfg.Preempt) && cfg.Detector == nil {
		return nil, errors.New("election: Config.Priority and Config.Preempt need a Config.Detector, from which a leader learns the priorities of its standbys")
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
	process := newProcessLock(cfg.ReplicasDirectory)
	if cfg.presence {
		cfg.Name = lease.LifeName(process.process)
	}
	suffix := "_" + process.process[:8]
	if cfg.Replica == "" {
		hostname, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("no host name for the holder identity, set Config.Replica: %w", err)
		}
		cfg.Replica, cfg.Instance = hostname+suffix, cmp.Or(cfg.Instance, hostname+suffix)
	}
	cfg.Instance = cmp.Or(cfg.Instance, cfg.Replica+suffix)
	e := &Elector{
		cfg:         cfg,
		api:         lease.API{Client: cfg.Client, Namespace: cfg.Namespace, Name: cfg.Name, Timeout: cfg.requestTimeout()},
		identities:  newIdentities(cfg.Replica, cfg.kind().objects),
		processLock: process,
		state:       stopped,
		born:        time.Now(),
	}
	e.standing.Cannot, e.standing.Again, e.standing.Key = cfg.kind().standing[0], cfg.kind().standing[1], cfg.kind().standing[2]
	e.lives = &lives{watcherOf: func(name string) (*lease.View, *lease.Watcher) {
		return watcherOfLife(e.api.For(name), cfg.RetryPeriod)
	}}
	if err := e.share(); err != nil {
		return nil, err
	}
	if cfg.presence {
		hide(e)
	} else {
		show(e)
	}
	return e, nil
}

// share takes from a Presence what its Electors have in common: the names of this process, and who others are.
func (e *Elector) share() (err error) {
	if e.cfg.kind().presence == nil {
		return nil
	}
	if e.presence, err = e.cfg.kind().presence(e.cfg); err != nil {
		return err
	}
	of := e.presence.elector
	e.identities, e.processLock, e.lives = of.identities, of.processLock, of.lives
	e.cfg.Replica, e.cfg.Instance = of.cfg.Replica, of.cfg.Instance
	return nil
}

// NewUnelected returns an Elector that is no candidate: it never writes the Lease. Whenever nobody holds the lease it
// runs a term without a lease and with epoch 0, and ends that term when somebody acquires the lease. Two such processes
// do not notice each other. Mode, Priority, Preempt, SucceedUnfenced, Detector and Detection of cfg are ignored. It
// returns the same errors as New.
func NewUnelected(cfg Config) (*Elector, error) {
	cfg.unelected, cfg.Mode, cfg.Priority, cfg.Preempt, cfg.SucceedUnfenced, cfg.Detector, cfg.Detection = true, Renewed{}, 0, false, false, nil, ""
	return New(cfg)
}

// Errors of Elector.StepDown.
var (
	// ErrNotLeading: this process leads no term that could be ended.
	ErrNotLeading = errors.New("this process does not lead")
	// ErrNoStandby: no standby has the given name, or none can be preferred.
	ErrNoStandby = errors.New("there is no such standby")
	// ErrLeadsAlready: the replica that should lead next is this process, and it leads.
	ErrLeadsAlready = errors.New("the replica that should lead next leads already")
)

// StepDown asks the current term of this process to end, and writes reason on the Lease. It returns that term without
// waiting for its end, or ErrNotLeading if there is none. The process does not campaign again before one retry period
// has passed, so that another replica can lead.
//
// If to is not empty, it is the name of the replica that should lead next (Config.Replica). The other standbys leave
// the lease to it for a quarter of the retry period. If the Elector has a Detector, that replica must have a stream to
// this process. Otherwise StepDown returns ErrNoStandby, and the term goes on. Without a Detector any other name is
// good. With this process's own name StepDown returns the term, which goes on, and ErrLeadsAlready.
//
// Any goroutine may call it at any time.
func (e *Elector) StepDown(reason, to string) (Term, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current.work == nil {
		return Term{}, ErrNotLeading
	}
	switch err := checkStandby(e.cfg, to, e.cfg.followers()); {
	case errors.Is(err, ErrLeadsAlready):
		return e.current.term, err
	case err != nil:
		return Term{}, err
	}
	e.current.work.fail(because(StepDown, "%w", &request{reason: reason, to: to}))
	return e.current.term, nil
}

// Names are those of a process: see Config.
type Names struct{ Replica, Instance string }

// Names returns those of this process, also if Config leaves them to New.
func (e *Elector) Names() Names { return Names{e.cfg.Replica, e.cfg.Instance} }

// checkStandby returns an error that wraps ErrNoStandby, or ErrLeadsAlready, if the replica of that name cannot be
// preferred. standbys are the replicas that follow this process.
func checkStandby(cfg Config, name string, standbys []Standby) error {
	switch {
	case name == "":
		return nil
	case cfg.kind().electing:
		return fmt.Errorf("%w that could be preferred: in mode %s the best candidate is elected", ErrNoStandby, cfg.Mode.Name())
	case name == cfg.Replica:
		return ErrLeadsAlready
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
	return fmt.Errorf("%w: %q is not among the replicas that follow this leader: %q", ErrNoStandby, name, slices.Compact(names))
}

// observe returns what was seen of the Lease, the epoch on it, and for how long there has been no holder with an
// unexpired lease. A holder that has not been heard for too long (situation.unaccounted) does not count as one.
func (e *Elector) observe(now time.Time) (latest lease.Observation, epoch int64, leaderless time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.view != nil {
		latest, _ = e.view.Latest()
		latest = e.withPresence(latest, now)
	}
	since := e.born
	if e.cfg.unelected && e.current.work != nil {
		since = now // this process leads without a lease
	} else if e.view != nil {
		epoch = latest.Epoch()
		news, _ := e.peer.latest(Contact(latest.Presence().Contact))
		_, due := situation{seen: latest, holder: knowledge{mine: e.identities.ours(latest.Holder()), news: news}}.unaccounted(e.cfg)
		switch {
		case !latest.IsKnown():
		case latest.Holder() == "":
			since = latest.Since
		case !due.IsZero():
			since = due
		case !latest.Expires():
			since = now
		default:
			since = latest.Expiry(e.cfg.LeaseDuration)
		}
	}
	return latest, epoch, max(0, now.Sub(since))
}

// Run calls lead once for each term, one after the other, until ctx ends or lead asks to exit. Losing the lease never
// ends it. Run returns context.Cause(ctx), or an error that wraps ErrExit. It returns only when everything that it
// started has ended, including the last call of lead. By then it has released the lease, if it held it and the store
// could be reached.
//
// After the end of ctx, Config.Client must still work for Config.EndTimeout, so that the term can drain and the lease
// be released.
//
// Run does not return before lead does. If lead has not returned at the end of the drain timeout, the log says that the
// shutdown waits for it; if lead never returns, neither does Run. A program that must end all the same has to bound its
// own wait for Run, and then exit its process: the lease expires, and the server refuses late writes if they are
// fenced. Leader.Stop of package leader does that wait.
//
// Run may be called again after it has returned. It panics if it is called while it runs.
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
