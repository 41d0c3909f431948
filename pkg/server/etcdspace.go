package server

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

// etcdSpacePeriod is the pause between two looks at how large etcd is.
const etcdSpacePeriod = 10 * time.Second

// errEtcdFull says that etcd has no space left.
var errEtcdFull = errors.New("etcd has no space left (alarm NOSPACE), and takes no writes but deletions: see docs/OPERATIONS.md, RegentEtcdFull")

// etcdSpace knows how large etcd is, and how large it may get. It is asked by way of the connection that is in use:
// which member answers does not matter.
type etcdSpace struct {
	client *clientv3.Client
	// learned is told how large etcd may get. Versions before 3.6 do not tell.
	learned func(quota int64)
	full    atomic.Bool
	quota   atomic.Int64 // 0 until etcd has told
}

// room returns how many bytes all objects may have, or 0 if etcd does not tell. The other half of its quota is for what
// etcd needs for them, for changes that are not compacted yet, and for Events (edge.WriteLimits.Fit).
func (s *etcdSpace) room() int64 { return s.quota.Load() / 2 }

// watch looks again and again, until ctx ends.
func (s *etcdSpace) watch(ctx context.Context) {
	registerSpaceMetrics()
	for {
		s.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(etcdSpacePeriod):
		}
	}
}

// look asks once. That etcd does not answer, others tell.
func (s *etcdSpace) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, etcdCheckTimeout)
	defer cancel()
	if status, err := pb.NewMaintenanceClient(s.client.ActiveConnection()).Status(ctx, &pb.StatusRequest{}); err == nil {
		s.note(status)
	}
}

func (s *etcdSpace) note(status *pb.StatusResponse) {
	full := slices.ContainsFunc(status.Errors, func(alarm string) bool { return strings.Contains(alarm, pb.AlarmType_NOSPACE.String()) })
	s.full.Store(full)
	etcdFull.Set(map[bool]float64{true: 1}[full])
	etcdSize.Set(float64(status.DbSize))
	etcdInUse.Set(float64(status.DbSizeInUse))
	if status.DbSizeQuota > 0 {
		etcdQuota.Set(float64(status.DbSizeQuota))
		s.quota.Store(status.DbSizeQuota)
		s.learned(status.DbSizeQuota)
	}
}

// Name implements healthz.HealthChecker.
func (s *etcdSpace) Name() string { return "etcd-space" }

// Check implements healthz.HealthChecker.
func (s *etcdSpace) Check(*http.Request) error {
	if s.full.Load() {
		return errEtcdFull
	}
	return nil
}

var (
	etcdFull = metrics.NewGauge(&metrics.GaugeOpts{
		Name: "regent_etcd_full", StabilityLevel: metrics.ALPHA,
		Help: "1: etcd has no space left (alarm NOSPACE), and takes no writes but deletions.",
	})
	etcdSize = metrics.NewGauge(&metrics.GaugeOpts{
		Name: "regent_etcd_size_bytes", StabilityLevel: metrics.ALPHA,
		Help: "How large etcd's database is, which counts for its quota: with what was deleted or overwritten, until it is defragmented.",
	})
	etcdInUse = metrics.NewGauge(&metrics.GaugeOpts{
		Name: "regent_etcd_in_use_bytes", StabilityLevel: metrics.ALPHA, Help: "How much of etcd's database is in use.",
	})
	etcdQuota = metrics.NewGauge(&metrics.GaugeOpts{
		Name: "regent_etcd_quota_bytes", StabilityLevel: metrics.ALPHA, Help: "How large etcd's database may get. 0: etcd does not tell, before version 3.6.",
	})
)

var registerSpaceMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(etcdFull, etcdSize, etcdInUse, etcdQuota) })

var _ healthz.HealthChecker = (*etcdSpace)(nil)
