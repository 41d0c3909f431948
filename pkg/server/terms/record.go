package terms

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/ranges"
)

// Remember writes the record of a term, with the term's clients. phases are how long the takeover's phases took, in
// seconds. It writes nothing if the record is there already.
type Remember func(ctx context.Context, clients controllers.Clients, of ranges.Range, term election.Term, phases map[string]float64) error

const (
	// recordTries is how often the record of a term is tried, and recordPause the time in between.
	recordTries, recordPause = 3, 10 * time.Second
	// recordTimeout is how long a try may take.
	recordTimeout = 5 * time.Second
	// lastRecordTimeout is how long the end of a term may have to wait for its record.
	lastRecordTimeout = 250 * time.Millisecond
)

// errWorkEnded is why no record is awaited any more.
var errWorkEnded = errors.New("the term's work has ended")

// record has the record of a term written once its takeover is told, in the background. If the term ends before that,
// it is written then, if it still can be. Whatever fails only costs the record: the next leader tells that the term
// was. The returned function waits until it is done.
func (r *Runner) record(ctx context.Context, t *timeline, of ranges.Range, term election.Term, clients controllers.Clients) (stop func()) {
	if r.cfg.Remember == nil || term.Token().IsZero() {
		return func() {}
	}
	ctx, end := context.WithCancelCause(ctx)
	write := func(ctx context.Context, timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return r.cfg.Remember(ctx, clients, of, term, t.phases())
	}
	var writing sync.WaitGroup
	writing.Go(func() { keepRecord(ctx, t.done, write) })
	return func() {
		end(errWorkEnded)
		writing.Wait()
	}
}

func keepRecord(ctx context.Context, told <-chan struct{}, write func(context.Context, time.Duration) error) {
	select {
	case <-told:
	case <-ctx.Done():
	}
	var err error // of a try that failed by itself
	for n := 0; n < recordTries && ctx.Err() == nil; n++ {
		tried := write(ctx, recordTimeout)
		if tried == nil {
			return
		}
		if ctx.Err() == nil {
			err = tried
		}
		select {
		case <-ctx.Done():
		case <-time.After(recordPause):
		}
	}
	if err == nil && writesStill(context.Cause(ctx)) {
		err = write(context.WithoutCancel(ctx), lastRecordTimeout)
	}
	if err != nil {
		klog.FromContext(ctx).Info("The history has no record of this term. Its successor will tell of it", "err", err)
	}
}

// writesStill reports whether a term that ended for a cause may write until its lease is released, and etcd probably
// answers.
func writesStill(cause error) bool {
	for _, over := range []error{election.Deposed, election.Fenced, election.RenewDeadline} {
		if errors.Is(cause, over) {
			return false
		}
	}
	return true
}
