package leader

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/election"
)

// Leader leads in terms, once: between Start and Stop, or for as long as Run lasts.
type Leader struct {
	process
	elector *election.Elector
}

// New returns a Leader, and starts nothing. It copies config. If cfg says nothing of this process's address, it may ask
// for the address of the server's name.
func New(config *rest.Config, cfg Config) (*Leader, error) {
	l := &Leader{}
	e, err := l.prepare(config, cfg)
	if err != nil {
		return nil, err
	}
	if l.elector, err = election.New(e); err != nil {
		return nil, fmt.Errorf("leader: Config: %w", err)
	}
	l.within, l.hold = e.EndTimeout(), l.elector.Hold
	return l, nil
}

// Elector returns what elects this process, to ask for its Status and to step down. Do not call its Run.
func (l *Leader) Elector() *election.Elector { return l.elector }

// Hold says in the Status of the elector what keeps this process from the election, for who waits for that before Run:
// see election.Elector.Hold.
func (l *Leader) Hold(why string) { l.elector.Hold(why) }

// Run leads, again and again, until ctx ends, and returns context.Cause(ctx), or an error that wraps election.ErrExit
// if lead returned one, or an error that says what is wrong with this process's Config, which only the server could
// show. It returns when everything has ended, so not before lead does: what must end anyway calls Start and Stop. The
// server must answer for a while after the end of ctx, so that the lease can be released: see
// election.Config.EndTimeout.
func (l *Leader) Run(ctx context.Context, lead election.LeadFunc) error {
	return l.runOnce(ctx, l.elect(lead))
}

// Start does what Run does, in the background, until Stop. ctx gives the logger and values; its end does not end
// anything, because the context of an API server's hooks ends when the server has stopped to answer, which is too late
// to release the lease. Start returns at once, also if the server does not answer yet. After Stop it does nothing.
func (l *Leader) Start(ctx context.Context, lead election.LeadFunc) error {
	return l.start(ctx, l.elect(lead))
}

func (l *Leader) elect(lead election.LeadFunc) func(context.Context) error {
	return func(ctx context.Context) error { return l.elector.Run(ctx, checksCluster(l.claim, lead)) }
}

// EndTimeout returns how long Stop takes at most: election.Config.EndTimeout, and somewhat longer than the work may
// take to stop.
func (l *Leader) EndTimeout() time.Duration { return l.within }

// Done returns a channel that is closed when what Start began has ended, by Stop or by itself. It is nil before Start.
func (l *Leader) Done() <-chan struct{} { return l.hasStopped() }

// Stop ends the term, if there is one, and releases the lease, and returns when nothing is left. The server must answer
// until then: in an API server, call it in a pre-shutdown hook. It returns an error if the election had ended by
// itself, or if the work of the term has not stopped in time. In the latter case the process should end: the lease is
// left to expire.
//
// Any goroutine may call it, at any time and any number of times. Before Start it prevents that Start does anything.
func (l *Leader) Stop() error { return l.stop() }
