package leader

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/ranges"
)

// Group leads a share of an election's ranges, beside other processes: see package ranges. As a Leader it does so once,
// between Start and Stop, or for as long as Run lasts.
type Group struct {
	process
	ranges *ranges.Group
}

// NewGroup returns a Group of an election that should have n ranges, and starts nothing: see ranges.Config. What Config
// says of the Lease is about each of the ranges. Adjust must set neither Mode nor Priority nor Preempt.
func NewGroup(config *rest.Config, cfg Config, n int) (*Group, error) {
	g := &Group{}
	e, err := g.prepare(config, cfg)
	if err != nil {
		return nil, err
	}
	if g.ranges, err = ranges.New(ranges.Config{Election: e, Ranges: n}); err != nil {
		return nil, fmt.Errorf("leader: %w", err)
	}
	e.Mode = election.ByPresence{}
	g.within, g.hold = e.EndTimeout()+e.RetryPeriod, g.ranges.Hold
	return g, nil
}

// Ranges returns what elects this process, to ask for its Status and to step down. Do not call its Run.
func (g *Group) Ranges() *ranges.Group { return g.ranges }

// Run leads the share of this process until ctx ends: see Leader.Run, also for what it returns.
func (g *Group) Run(ctx context.Context, lead ranges.LeadFunc) error {
	return g.runOnce(ctx, g.elect(lead))
}

// Start does what Run does, in the background, until Stop: see Leader.Start.
func (g *Group) Start(ctx context.Context, lead ranges.LeadFunc) error {
	return g.start(ctx, g.elect(lead))
}

// EndTimeout returns how long Stop takes at most: see Leader.EndTimeout. The ranges end one after the other, within a
// retry period.
func (g *Group) EndTimeout() time.Duration { return g.within }

// Done returns a channel that is closed when what Start began has ended: see Leader.Done.
func (g *Group) Done() <-chan struct{} { return g.hasStopped() }

// Stop ends all terms and releases their leases, and returns when nothing is left: see Leader.Stop.
func (g *Group) Stop() error { return g.stop() }

func (g *Group) elect(lead ranges.LeadFunc) func(context.Context) error {
	return func(ctx context.Context) error {
		return g.ranges.Run(ctx, func(ctx context.Context, of ranges.Range, term election.Term) error {
			return checksCluster(g.claim, func(ctx context.Context, term election.Term) error { return lead(ctx, of, term) })(ctx, term)
		})
	}
}

// Name is that of the health check.
func (*Group) Name() string { return "leader" }

// Check is a health check as Leader.Check is. It also fails while work of any range has not stopped in time.
func (g *Group) Check(*http.Request) error {
	if err := g.hasEnded(); err != nil {
		return err
	}
	for k, r := range g.ranges.Status().Ranges {
		if r.State == quarantined {
			return g.isQuarantined(fmt.Sprintf("range %d of Lease", k))
		}
	}
	return nil
}
