package mcr

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/election/ranges"
)

// term is one of a range in this process.
type term struct {
	in         *Coordinator
	of         ranges.Range
	ctx        context.Context //nolint:containedctx // the term's, which each of its reconciles has
	token      fence.Token
	reconciles sync.WaitGroup // those that have begun in it
	changed    chan struct{}  // has something when the clusters of the range may have changed

	// works says of each cluster what is aware has been told. lead's goroutine owns it.
	works map[*engaged]*engagement
}

// engagement is that what is aware has been told of a cluster.
type engagement struct {
	ctx      context.Context    //nolint:containedctx // its end disengages
	end      context.CancelFunc // ends it; nil: nobody has been told
	told     int                // how many that are aware
	failures int
	again    time.Time // when to try again
}

func newTerm(ctx context.Context, in *Coordinator, of ranges.Range, led election.Term) *term {
	t := &term{in: in, of: of, ctx: ctx, changed: make(chan struct{}, 1), works: map[*engaged]*engagement{}}
	if led.Fenced() {
		t.token = led.Token()
	}
	return t
}

// wake has the term look at the clusters of its range. It does not block.
func (t *term) wake() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// await waits until the clusters may have changed, it is time to try again, or ctx ends.
func (t *term) await(ctx context.Context) {
	next := time.Now().Add(time.Hour)
	for _, w := range t.works {
		if !w.again.IsZero() && w.again.Before(next) {
			next = w.again
		}
	}
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-t.changed:
	case <-timer.C:
	}
}

// engage tells what is aware of the clusters of the range, and ends that for those that have gone.
func (t *term) engage(ctx context.Context) {
	t.in.mu.Lock()
	awares, clusters := slices.Clone(t.in.awares), maps.Clone(t.in.inRange[t.of.Index])
	t.in.mu.Unlock()
	for e, w := range t.works {
		if clusters[e.name] != e {
			w.stop()
			delete(t.works, e)
		}
	}
	for _, e := range clusters {
		w := t.works[e]
		if w == nil {
			w = &engagement{}
			t.works[e] = w
		}
		if ctx.Err() == nil {
			w.tell(ctx, e, awares, t.in.patience)
		}
	}
}

// tell tells all of a cluster that have not been told. If one fails, or takes too long, all are told again after a
// while.
func (w *engagement) tell(ctx context.Context, e *engaged, awares []multicluster.Aware, patience time.Duration) {
	if w.told == len(awares) || time.Now().Before(w.again) {
		return
	}
	if w.end == nil {
		w.ctx, w.end = context.WithCancel(ctx)
	}
	for _, aware := range awares[w.told:] {
		late := time.AfterFunc(patience, w.end)
		err := aware.Engage(w.ctx, e.name, e.cluster) //nolint:contextcheck // it is made of ctx
		if !late.Stop() && ctx.Err() == nil {
			err = fmt.Errorf("it took longer than %v, see whether the cluster's server answers, and whether its account may list and watch: %w", patience, context.DeadlineExceeded)
		}
		if err != nil {
			w.stop()
			w.again = time.Now().Add(min(shortestRetry<<min(w.failures, 10), longestRetry))
			w.failures++
			log.FromContext(ctx).Error(err, "Cannot work in a cluster: trying again", "cluster", e.name, "aware", nameOf(aware), "failures", w.failures, "at", w.again)
			return
		}
		w.told++
	}
	w.failures, w.again = 0, time.Time{}
}

// stop disengages all that have been told.
func (w *engagement) stop() {
	if w.end != nil {
		w.end()
		w.end, w.told = nil, 0
	}
}

const (
	shortestRetry = time.Second
	longestRetry  = time.Minute
)
