package perterm

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/join"
	"github.com/regent-project/regent/pkg/election/ranges"
)

// leave is what package join is told to leave alone, because it writes nothing and may never end:
//
//   - the goroutines of a queue. Up to v0.24 controller-runtime's queue can forget one when it is shut down: it offers
//     an item, for ever, to a worker that has gone, and holds the lock that the others wait for.
//   - what waits, in a cache of several namespaces, until an event handler has seen everything. One that is removed
//     before never has.
var leave = []string{
	queue + "handleReadyItems", queue + "handleAddBuffer", queue + "handleWaitingItems", queue + "logState", queue + "updateUnfinishedWorkLoop",
	"sigs.k8s.io/controller-runtime/pkg/cache.newMultiNamespaceInformerHandlerRegistration",
}

const queue = "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue.(*priorityqueue[...])."

// Options say how terms run. The zero Options are good.
type Options struct {
	// Warm are objects of the kinds whose informers start with the process, so that a term begins with full caches.
	Warm []client.Object
	// Configure, if set, changes the options of each term's manager before it is made.
	Configure func(*manager.Options)
	// Join says who is reported as late, and what is not waited for.
	Join join.Options
	// Key returns, if set, the key by which an object belongs to a range, such as its namespace: the event handlers
	// of a range's term see only objects of that range. What is read is not filtered. A controller that also
	// watches what its objects own needs the same key for both. Add ignores it.
	Key func(client.Object) string
}

// Elector is what Add runs: an *election.Elector, or what wraps one.
type Elector interface {
	// Run calls lead once for each term until ctx ends.
	Run(ctx context.Context, lead election.LeadFunc) error
}

// Add makes process run the elector once its caches are synced, and setup for each term. At the end of process the term
// ends and the lease is released while the caches and webhooks still work. The election logs where process does. It is
// an error if process elects a leader itself: its Options.LeaderElection must be false. If an election ends with an
// error, process does.
func Add(process manager.Manager, elector Elector, o Options, setup func(m *Manager) error) error {
	return add(process, o, elector, func() func(context.Context) error {
		lead := Lead(process, o, setup)
		return func(ctx context.Context) error { return elector.Run(ctx, lead) }
	})
}

// Ranges is what AddRanges runs: a *ranges.Group, or what wraps one, as *leader.Group does.
type Ranges interface {
	// Run calls lead once for each term of each range until ctx ends.
	Run(ctx context.Context, lead ranges.LeadFunc) error
}

// AddRanges does what Add does, for a process that leads a share of an election's ranges beside others. setup is called
// for each term of each range, and those of different ranges go on at the same time: Manager.Range and Options.Key say
// what is whose.
func AddRanges(process manager.Manager, group Ranges, o Options, setup func(m *Manager) error) error {
	return add(process, o, group, func() func(context.Context) error {
		lead := LeadRanges(process, o, setup)
		return func(ctx context.Context) error { return group.Run(ctx, lead) }
	})
}

// add makes process run what elect returns.
func add(process manager.Manager, o Options, elector any, elect func() func(context.Context) error) error {
	if electsItself(process) {
		return errElects
	}
	if err := refuseLeft(process); err != nil {
		return err
	}
	// informers that are asked for before the start begin with it, and nothing here waits
	ctx := context.Background()
	i := &inspection{process: process, warm: map[string]cache.Informer{}, held: func(string) {}, done: make(chan struct{})}
	if h, ok := elector.(interface{ Hold(why string) }); ok {
		i.held = h.Hold
	}
	for _, obj := range o.Warm {
		informer, err := process.GetCache().GetInformer(ctx, obj, notSynced())
		if err != nil {
			return fmt.Errorf("perterm: Options.Warm: no informer for %T: %w", obj, err)
		}
		i.warm[kindOf(obj).String()] = informer
	}
	if err := process.Add(i); err != nil {
		return fmt.Errorf("perterm: %w", err)
	}
	return process.Add(&campaign{run: elect(), logger: process.GetLogger(), after: i})
}

var errElects = errors.New("perterm: the manager elects a leader itself, and would end the process when it loses that lease: " +
	"set manager.Options.LeaderElection to false, perterm elects")

// electsItself reports whether a manager has leader election turned on. The interface does not tell, so it looks for
// the lock in controller-runtime's own type, where v0.24 and v0.25 have it. Of a manager of another type it reports
// false.
func electsItself(process manager.Manager) bool {
	v := reflect.Indirect(reflect.ValueOf(process))
	if v.Kind() != reflect.Struct {
		return false
	}
	lock, found := v.Type().FieldByName("resourceLock")
	return found && len(lock.Index) == 1 && lock.Type.Kind() == reflect.Interface && !v.FieldByIndex(lock.Index).IsNil()
}

// campaign is a runnable of every replica.
type campaign struct {
	run    func(context.Context) error
	logger logr.Logger
	after  *inspection
}

// Start implements manager.Runnable.
func (c *campaign) Start(ctx context.Context) error {
	if <-c.after.done; c.after.err != nil {
		return c.after.err
	}
	ctx = logr.NewContext(ctx, c.logger) // else the election would write to klog, and the controllers elsewhere
	if err := c.run(ctx); ctx.Err() == nil || !isContextError(ctx, err) {
		return err
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*campaign) NeedLeaderElection() bool { return false }

// Lead returns the function that Add gives the elector, for programs that run it themselves. Call Lead before process
// starts, and the function while process runs.
func Lead(process manager.Manager, o Options, setup func(m *Manager) error) election.LeadFunc {
	lead := LeadRanges(process, o, setup)
	return func(ctx context.Context, term election.Term) error { return lead(ctx, ranges.Range{Of: 1}, term) }
}

// LeadRanges returns the function that AddRanges gives the group, as Lead does for Add.
func LeadRanges(process manager.Manager, o Options, setup func(m *Manager) error) ranges.LeadFunc {
	l := newLoan(process.GetCache(), process.GetControllerOptions().CacheSyncTimeout)
	o.Join.Leave = append(slices.Clone(o.Join.Leave), leave...)
	cannotCarry := carry(process)
	return func(ctx context.Context, of ranges.Range, term election.Term) error {
		return join.Lead(o.Join, func(ctx context.Context, term election.Term) error {
			if term.Fenced() && cannotCarry != nil {
				return cannotCarry
			}
			t := &tenancy{process: process, options: o, loan: l, scope: join.From(ctx), of: of, term: term}
			t.ctx = t.in(ctx)
			m, err := t.manager()
			if err != nil {
				return fmt.Errorf("cannot make the manager of the term: %w", err)
			}
			if err := contain(func() error { return setup(m) }); err != nil {
				return fmt.Errorf("cannot set up the term: %w", err)
			}
			return m.Manager.Start(t.ctx) //nolint:contextcheck // it is made of ctx
		})(ctx, term)
	}
}
