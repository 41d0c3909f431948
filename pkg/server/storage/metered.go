package storage

import (
	"context"
	"errors"

	"github.com/kcp-dev/logicalcluster/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// Meter is told what is written, and says who may not write more for now. All methods may be called at any time on any
// goroutine.
type Meter interface {
	// MayWrite returns why the request in ctx may not write now, or nil. cached says that the resource has a watch
	// cache.
	MayWrite(ctx context.Context, cached bool) error
	// Wrote is told that the request in ctx has written so many bytes.
	Wrote(ctx context.Context, cached bool, bytes int)
	// Saw is told that somebody, on whatever replica, has written so many bytes in a logical cluster, of a resource
	// that has a watch cache.
	Saw(cluster logicalcluster.Name, bytes int)
}

// metered has the client below ask the Meter about each creation and update of a resource, and tell it what was
// written. So what changes nothing is not refused. Neither is what makes room: deletions, and the updates of which they
// are made.
type metered struct {
	storage.Interface
	meter  Meter
	cached bool
}

// metering is a call of one metered resource.
type metering struct {
	*metered
	// makesRoom says that the write is a step of a deletion.
	makesRoom bool
}

type meterKey struct{}

func (m *metered) in(ctx context.Context) (context.Context, *metering) {
	call := &metering{metered: m}
	return context.WithValue(ctx, meterKey{}, call), call
}

// Create implements storage.Interface.
func (m *metered) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	ctx, _ = m.in(ctx)
	return m.Interface.Create(ctx, key, obj, out, ttl)
}

// GuaranteedUpdate implements storage.Interface.
func (m *metered) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object,
) error {
	ctx, call := m.in(ctx)
	judged := func(current runtime.Object, res storage.ResponseMeta) (runtime.Object, *uint64, error) {
		before := stageOf(current)
		updated, ttl, err := tryUpdate(current, res)
		if err == nil {
			call.makesRoom = stageOf(updated).follows(before)
		}
		return updated, ttl, err
	}
	return m.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, judged, cached)
}

// stage is how far an object is on its way to be deleted.
type stage struct {
	deleted    bool
	finalizers int
}

// lastFinalizers is how many finalizers can be taken away one by one, whatever was written. An object may have
// thousands.
const lastFinalizers = 8

func stageOf(obj runtime.Object) stage {
	of, err := meta.Accessor(obj)
	if err != nil || of.GetDeletionTimestamp() == nil {
		return stage{}
	}
	return stage{true, len(of.GetFinalizers())}
}

// follows reports whether an object is a step further than before.
func (s stage) follows(before stage) bool {
	return s.deleted && (!before.deleted || s.finalizers < before.finalizers && s.finalizers < lastFinalizers)
}

// mayPut returns why a value may not be written now, or nil.
func mayPut(ctx context.Context) error {
	if of, ok := ctx.Value(meterKey{}).(*metering); ok && !of.makesRoom {
		return of.meter.MayWrite(ctx, of.cached)
	}
	return nil
}

// hasPut tells the meter of the resource in ctx, if there is one, of a write. One without an answer may have been
// carried out.
func hasPut(ctx context.Context, resp kubernetes.PutResponse, err error, bytes int) {
	of, ok := ctx.Value(meterKey{}).(*metering)
	if ok && (err == nil && resp.Succeeded || isUnanswered(err)) {
		of.meter.Wrote(ctx, of.cached, bytes)
	}
}

func isUnanswered(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		return true
	}
	return false
}

// unmetered lets everybody write.
type unmetered struct{}

func (unmetered) MayWrite(context.Context, bool) error { return nil }
func (unmetered) Wrote(context.Context, bool, int)     {}
func (unmetered) Saw(logicalcluster.Name, int)         {}

var _ Meter = unmetered{}
