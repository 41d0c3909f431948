package election

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/internal/series"
)

// client-go takes one provider of metrics, the first that it is given. Programs that link
// component-base/metrics/prometheus/clientgo (kube-apiserver does) or controller-runtime have given it theirs when they
// began. A provider cannot be asked for again, but client-go's elector tells it everything: that nobody leads, when an
// elector is made, and that somebody does, when it acquires a lock. So an elector on a lock in memory keeps the other
// provider's gauge right.

// foreignProvider reports whether client-go has another provider of metrics than this package's. The first call asks
// client-go, in the name of a Lease.
func foreignProvider(name string) bool {
	findProvider.Do(func() {
		leaderelection.SetProvider(provider{})
		_ = newToldElector(name, func() {})
		series.Settle()
	})
	return !asked.Load()
}

var findProvider sync.Once

// asked is set when client-go asks this package for metrics.
var asked atomic.Bool

// tellProvider tells client-go's provider of metrics whether this process leads under the Lease of that name. It takes
// no context: nothing in it waits.
func tellProvider(name string, leads bool) {
	// Without a logger, because the Elector has logged it.
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	defer cancel()
	told := newToldElector(name, cancel) // this tells that nobody leads
	if leads {
		told.Run(ctx) // returns once it has told
	}
}

// newToldElector returns an elector of client-go that tells the provider that it leads under that name when it runs,
// and calls told. If told ends the context of Run, nothing else follows.
func newToldElector(name string, told func()) *leaderelection.LeaderElector {
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: toldLock{told}, Name: name, LeaseDuration: 3 * time.Hour, RenewDeadline: 2 * time.Hour, RetryPeriod: time.Hour,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
	})
	if err != nil {
		panic(err) // its configuration is constant
	}
	return elector
}

// toldLock is a lock that nobody holds and that anybody can take. It calls told when it is taken.
type toldLock struct{ told func() }

func (toldLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return nil, nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), "told")
}
func (toldLock) Create(context.Context, resourcelock.LeaderElectionRecord) error { return nil }
func (toldLock) Update(context.Context, resourcelock.LeaderElectionRecord) error { return nil }
func (l toldLock) RecordEvent(string)                                            { l.told() }
func (toldLock) Identity() string                                                { return "told" }
func (toldLock) Describe() string                                                { return "told" }

var _ resourcelock.Interface = toldLock{}
