package clientgo

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/leader"
)

// LeaderElector is what client-go's LeaderElector is, and its Run can be called again.
type LeaderElector struct {
	callbacks leaderelection.LeaderCallbacks
	lock      *resourcelock.LeaseLock
	lease     time.Duration // how long it lasts
	// what the server has to prove before this process campaigns; nil: nothing, or it has
	claim   *election.Config
	elector *election.Elector
	changed chan struct{} // capacity 1: the Lease shows another holder

	mu    sync.Mutex
	leads bool      // the context of OnStartedLeading has not ended
	works bool      // OnStartedLeading has not returned
	ended time.Time // when the latest term has ended
}

// NewLeaderElector returns an elector for a configuration of client-go, or an error that names the fields that are
// wrong or cannot be honoured. adjust, if given, changes the election.Config that follows from it.
func NewLeaderElector(lec leaderelection.LeaderElectionConfig, adjust ...func(*election.Config)) (*LeaderElector, error) {
	lock, err := leaseLock(lec)
	if err != nil {
		return nil, err
	}
	cfg := electionConfig(lec, lock)
	for _, a := range adjust {
		a(&cfg)
	}
	le := &LeaderElector{callbacks: lec.Callbacks, lock: lock, lease: cfg.LeaseDuration, changed: make(chan struct{}, 1)}
	further := cfg.Changed
	cfg.Changed = func() {
		select {
		case le.changed <- struct{}{}:
		default:
		}
		if further != nil {
			further()
		}
	}
	if le.elector, err = election.New(cfg); err != nil {
		return nil, fmt.Errorf("clientgo: LeaderElectionConfig: %w", err)
	}
	if cfg.Fenced {
		le.claim = &cfg
	}
	return le, nil
}

// Elector returns what elects this process, to ask for its Status, to step down, and to Close it. Do not call its Run.
func (le *LeaderElector) Elector() *election.Elector { return le.elector }

// RunOrDie runs an elector for a configuration, or panics if that is wrong. Call it again to lead again;
// NewLeaderElector is better for that, because its elector remembers what it left on the Lease.
func RunOrDie(ctx context.Context, lec leaderelection.LeaderElectionConfig, adjust ...func(*election.Config)) {
	le, err := NewLeaderElector(lec, adjust...) //nolint:contextcheck // it starts nothing
	if err != nil {
		panic(err)
	}
	le.Run(ctx)
}

// errTermOver makes election.Elector.Run return after one term.
var errTermOver = fmt.Errorf("%w: clientgo leads for one term at a time", election.ErrExit)

// Run stands by until it leads, leads for one term, and returns when everything has ended, or earlier if ctx ends
// before it has led. OnStoppedLeading is called in either case, as the last. After the end of ctx the lock's client
// must work for election.Config.EndTimeout. If adjust has set election.Config.Fenced, and the server shows that it does
// not check tokens, Run panics: see leader.ProveFenced.
func (le *LeaderElector) Run(ctx context.Context) {
	if err := le.prove(ctx); err != nil {
		le.callbacks.OnStoppedLeading()
		if ctx.Err() != nil {
			return
		}
		panic(err)
	}
	crash := le.run(ctx)
	le.callbacks.OnStoppedLeading()
	if crash != nil {
		panic(crash.String())
	}
}

// prove has the server prove what election.Config.Fenced says, once.
func (le *LeaderElector) prove(ctx context.Context) error {
	if le.claim == nil {
		return nil
	}
	if err := leader.ProveFenced(ctx, *le.claim, le.elector.Hold); err != nil {
		return fmt.Errorf("clientgo: the client of LeaderElectionConfig.Lock must send the tokens of its contexts (config.Wrap(fence.Transport(fence.FromContext))), and the server must check them: %w", err)
	}
	le.claim = nil
	return nil
}

// run returns how the work has panicked, if it has.
func (le *LeaderElector) run(ctx context.Context) (crash *crash) {
	telling, stop := context.WithCancel(ctx)
	var told sync.WaitGroup
	defer told.Wait()
	defer stop()
	if le.callbacks.OnNewLeader != nil {
		told.Go(func() { le.tellLeaders(telling) })
	}
	// it returns because the term or ctx is over: the log says which
	_ = le.elector.Run(ctx, func(ctx context.Context, term election.Term) error {
		if crash = le.lead(ctx, term); crash != nil {
			return fmt.Errorf("%w: OnStartedLeading has panicked: %v", errTermOver, crash.value)
		}
		return errTermOver
	})
	return crash
}

// lead runs one term. It returns when the term's context has ended, and OnStartedLeading has returned.
func (le *LeaderElector) lead(ctx context.Context, term election.Term) (panicked *crash) {
	le.begin(ctx)
	le.record(term, "became leader")
	defer le.record(term, "stopped leading")
	unlink := context.AfterFunc(ctx, le.end)
	defer le.joined()
	defer unlink()
	work := make(chan *crash, 1)
	go func() {
		var c *crash // also if the callback ends its goroutine
		defer func() { work <- c }()
		defer func() {
			if value := recover(); value != nil {
				c = &crash{value, debug.Stack()}
			}
		}()
		le.callbacks.OnStartedLeading(inTerm(ctx, term))
	}()
	select {
	case panicked = <-work:
	case <-ctx.Done():
		return <-work
	}
	if panicked == nil {
		<-ctx.Done() // as client-go, it leads on when the callback has returned
	}
	return panicked
}

// crash is a panic of OnStartedLeading.
type crash struct {
	value any
	stack []byte
}

func (c *crash) String() string { return fmt.Sprintf("OnStartedLeading: %v\n%s", c.value, c.stack) }

func (le *LeaderElector) begin(ctx context.Context) {
	le.mu.Lock()
	defer le.mu.Unlock()
	le.leads, le.works, le.ended = ctx.Err() == nil, true, time.Now()
}

func (le *LeaderElector) end() {
	le.mu.Lock()
	defer le.mu.Unlock()
	le.leads, le.ended = false, time.Now()
}

func (le *LeaderElector) joined() {
	le.mu.Lock()
	defer le.mu.Unlock()
	le.leads, le.works = false, false
}

// record records an Event as client-go does, if the lock has a recorder.
func (le *LeaderElector) record(term election.Term, what string) {
	if le.lock.LockConfig.EventRecorder == nil {
		return
	}
	lease := &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: le.lock.LeaseMeta.Namespace, Name: le.lock.LeaseMeta.Name, UID: term.Token().UID},
	}
	le.lock.LockConfig.EventRecorder.Eventf(lease, corev1.EventTypeNormal, "LeaderElection", "%s %s", le.lock.Identity(), what)
}

// tellLeaders calls OnNewLeader for each leader that it sees, one call after the other, until ctx ends.
func (le *LeaderElector) tellLeaders(ctx context.Context) {
	told := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-le.changed:
		}
		if leader := le.GetLeader(); leader != "" && leader != told {
			told = leader
			le.callbacks.OnNewLeader(leader)
		}
	}
}

// IsLeader reports whether this process leads: the context of OnStartedLeading has begun and has not ended.
func (le *LeaderElector) IsLeader() bool {
	le.mu.Lock()
	defer le.mu.Unlock()
	return le.leads
}

// GetLeader returns the identity of the leader that was seen last; empty if none was seen, or if nobody leads.
func (le *LeaderElector) GetLeader() string {
	status := le.elector.Status()
	if status.Holder == "" {
		return ""
	}
	return cmp.Or(status.Leader, status.Holder) // a stock client says no more than the holder
}

// Check returns an error if OnStartedLeading still runs although the lease must have expired for others, for longer
// than that. The process should then be ended.
func (le *LeaderElector) Check(maxTolerableExpiredLease time.Duration) error {
	le.mu.Lock()
	defer le.mu.Unlock()
	if !le.works || le.leads || time.Since(le.ended) <= le.lease+maxTolerableExpiredLease {
		return nil
	}
	return fmt.Errorf("the term under lease %s has ended %v ago, and its work has not stopped", le.lock.Describe(), time.Since(le.ended).Round(time.Second))
}
