package etcdcheck

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// spacePeriod is the pause between two looks at how large etcd is.
const spacePeriod = 10 * time.Second

// ErrFull says that etcd has no space left.
var ErrFull = errors.New("etcd has no space left (alarm NOSPACE), and takes no writes but deletions: see docs/reference/alerts.md#regentetcdfull")

// Space knows how large etcd is, and how large it may get. It is asked by way of the connection that is in use:
// which member answers does not matter.
type Space struct {
	client *clientv3.Client
	// learned is told how large etcd may get. Versions before 3.6 do not tell.
	learned func(quota int64)
	isFull  atomic.Bool
	most    atomic.Int64 // 0 until etcd has told
}

// NewSpace returns a check that asks by way of a client. learned is told how large etcd may get.
func NewSpace(client *clientv3.Client, learned func(quota int64)) *Space {
	return &Space{client: client, learned: learned}
}

// Room returns how many bytes all objects may have, or 0 if etcd does not tell. The other half of its quota is for what
// etcd needs for them, for changes that are not compacted yet, and for Events (edge.WriteLimits.Fit).
func (s *Space) Room() int64 { return s.most.Load() / 2 }

// Run looks again and again, until ctx ends.
func (s *Space) Run(ctx context.Context) {
	registerMetrics()
	for {
		s.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(spacePeriod):
		}
	}
}

// look asks once. That etcd does not answer, others tell.
func (s *Space) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if status, err := pb.NewMaintenanceClient(s.client.ActiveConnection()).Status(ctx, &pb.StatusRequest{}); err == nil {
		s.note(status)
	}
}

func (s *Space) note(status *pb.StatusResponse) {
	isFull := slices.ContainsFunc(status.Errors, func(alarm string) bool { return strings.Contains(alarm, pb.AlarmType_NOSPACE.String()) })
	s.isFull.Store(isFull)
	full.Set(map[bool]float64{true: 1}[isFull])
	size.Set(float64(status.DbSize))
	inUse.Set(float64(status.DbSizeInUse))
	if status.DbSizeQuota > 0 {
		quota.Set(float64(status.DbSizeQuota))
		s.most.Store(status.DbSizeQuota)
		s.learned(status.DbSizeQuota)
	}
}

// Name implements healthz.HealthChecker.
func (s *Space) Name() string { return "etcd-space" }

// Check implements healthz.HealthChecker.
func (s *Space) Check(*http.Request) error {
	if s.isFull.Load() {
		return ErrFull
	}
	return nil
}

var (
	full = metrics.NewGauge(&metrics.GaugeOpts{
		Name: "regent_etcd_full", StabilityLevel: metrics.ALPHA,
		Help: "1: etcd has no space left (alarm NOSPACE), and takes no writes but deletions.",
	})
	size = metrics.NewGauge(&metrics.GaugeOpts{
		Name: "regent_etcd_size_bytes", StabilityLevel: metrics.ALPHA,
		Help: "How large etcd's database is, which counts for its quota: with what was deleted or overwritten, until it is defragmented.",
	})
	inUse = metrics.NewGauge(&metrics.GaugeOpts{
		Name: "regent_etcd_in_use_bytes", StabilityLevel: metrics.ALPHA, Help: "How much of etcd's database is in use.",
	})
	quota = metrics.NewGauge(&metrics.GaugeOpts{
		Name: "regent_etcd_quota_bytes", StabilityLevel: metrics.ALPHA, Help: "How large etcd's database may get. 0: etcd does not tell, before version 3.6.",
	})
)

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(full, size, inUse, quota) })

var _ healthz.HealthChecker = (*Space)(nil)
