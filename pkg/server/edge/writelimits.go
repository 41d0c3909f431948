package edge

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/clock"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/access"
	"github.com/regent-project/regent/pkg/server/fairness"
	"github.com/regent-project/regent/pkg/server/identity"
	"github.com/regent-project/regent/pkg/server/storage"
)

const (
	// historyWindow is for how long watch caches keep what has changed: upstream's 75 s, and as long as a ledger's
	// last part.
	historyWindow = 80 * time.Second
	// compactionWindow is for how long etcd keeps what has changed: API servers compact it every five minutes up to
	// what it was five minutes before.
	compactionWindow = 10 * time.Minute
	// eventsWindow is for how long etcd keeps Events.
	eventsWindow = time.Hour
	// usualQuota is how large etcd gets by default.
	usualQuota = 2 << 30
)

// WriteLimits bound how many bytes clients write, by logical cluster and by user (fairness.Ledger): each change is kept
// in the memory of every replica for a while, and in etcd until it is compacted. Quotas bound what is stored, and not
// how often it is rewritten.
//
// What was written in a cluster is told by the watches of etcd, whatever replica has written it. What a user has
// written, and Events, which have no watch cache, are known of this replica only.
//
// Not refused are this process, members of the installation and members of system:masters. Clusters that are the
// operators' have no bound of their own, but whoever writes there has.
type WriteLimits struct {
	clock clock.PassiveClock
	// Each bounds what would fill otherwise.
	history, compaction, events namedLedger
}

// namedLedger is a Ledger with its name.
type namedLedger struct {
	*fairness.Ledger
	name string
}

// NewWriteLimits returns bounds for watch caches that keep so many bytes of changes, 0: any number. Those for etcd
// suppose its own default quota at first.
func NewWriteLimits(historyBytes int64, clock clock.PassiveClock) *WriteLimits {
	registerWriteMetrics()
	w := &WriteLimits{
		clock:      clock,
		history:    namedLedger{fairness.NewLedger(cmp.Or(historyBytes, math.MaxInt64), historyWindow), "history"},
		compaction: namedLedger{fairness.NewLedger(0, compactionWindow), "compaction"},
		events:     namedLedger{fairness.NewLedger(0, eventsWindow), "events"},
	}
	w.Fit(usualQuota)
	return w
}

// Fit gives what is written a part of what etcd may have: a quarter to changes that are not compacted, an eighth to
// Events.
func (w *WriteLimits) Fit(quota int64) {
	w.compaction.Resize(quota / 4)
	w.events.Resize(quota / 8)
}

// writer returns for whom a write of the request in ctx counts. Nothing is refused to who is exempt.
func writer(ctx context.Context) (tenant, person string, exempt bool) {
	if cluster, ok := clusters.From(ctx); ok && !clusters.IsPermanent(cluster) {
		tenant = cluster.String()
	}
	who, ok := request.UserFrom(ctx)
	if !ok || slices.Contains([]string{identity.LeaderUser, identity.ReplicaUser}, who.GetName()) || slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) || identity.IsMember(who) {
		return tenant, "", true
	}
	_, person = access.CountedAs(ctx, who)
	return tenant, person, false
}

// MayWrite implements storage.Meter.
func (w *WriteLimits) MayWrite(ctx context.Context, cached bool) error {
	tenant, person, exempt := writer(ctx)
	if exempt {
		return nil
	}
	for _, by := range w.of(cached) {
		excess, ok := by.Excess(w.clock.Now(), tenant, person)
		if !ok {
			continue
		}
		writesRefused.WithLabelValues(by.name).Inc()
		whose := fmt.Sprintf("in logical cluster %q", tenant)
		if excess.ByPerson {
			whose = "by this user, in all logical clusters together,"
		}
		retry := min(excess.RetryAfter, 10*time.Second)
		return apierrors.NewTooManyRequests(fmt.Sprintf("%d bytes were written %s within %v, and all others have %d left (%s): write less, or less often; deletions are not refused",
			excess.Written, whose, excess.Window, excess.Left, by.name), int(retry.Seconds()))
	}
	return nil
}

// of returns the bounds for resources that have a watch cache, and for those that have none, which are Events.
func (w *WriteLimits) of(cached bool) []namedLedger {
	if cached {
		return []namedLedger{w.history, w.compaction}
	}
	return []namedLedger{w.events, w.compaction}
}

// Wrote implements storage.Meter.
func (w *WriteLimits) Wrote(ctx context.Context, cached bool, bytes int) {
	tenant, person, _ := writer(ctx)
	if cached {
		tenant = "" // what it has written is seen
	}
	for _, by := range w.of(cached) {
		by.Write(w.clock.Now(), tenant, person, int64(bytes))
	}
}

// Saw implements storage.Meter.
func (w *WriteLimits) Saw(cluster logicalcluster.Name, bytes int) {
	if clusters.IsPermanent(cluster) {
		return
	}
	for _, by := range w.of(true) {
		by.Write(w.clock.Now(), cluster.String(), "", int64(bytes))
	}
}

var writesRefused = metrics.NewCounterVec(&metrics.CounterOpts{
	Name: "regent_writes_refused_total", StabilityLevel: metrics.ALPHA,
	Help: "Writes that were answered with 429 because their logical cluster or user has written too many bytes lately, by what would have filled otherwise: the history of watch caches, etcd until its compaction, or etcd with events.",
}, []string{"limit"})

var registerWriteMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(writesRefused)
	for _, limit := range []string{"history", "compaction", "events"} {
		writesRefused.WithLabelValues(limit).Add(0)
	}
})

var _ storage.Meter = (*WriteLimits)(nil)
