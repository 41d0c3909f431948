package storage

import (
	"context"

	"github.com/kcp-dev/logicalcluster/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// Meter is told what is written, and says who may not write more for now. All methods may be called at any time on any goroutine.
type Meter interface {
	// MayWrite returns why the request in ctx may not write now, or nil. cached says that the resource has a watch cache.
	MayWrite(ctx context.Context, cached bool) error
	// Wrote is told that the request in ctx has written so many bytes.
	Wrote(ctx context.Context, cached bool, bytes int)
	// Saw is told that somebody, on whatever replica, has written so many bytes in a logical cluster, of a resource that has a watch cache.
	Saw(cluster logicalcluster.Name, bytes int)
}

// metered asks the Meter about each creation and update of a resource, and has the client below tell it what was written. What makes room is never
// refused: deletions, and the updates of which they are made.
type metered struct {
	storage.Interface
	meter  Meter
	cached bool
}

type meterKey struct{}

func (m *metered) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, meterKey{}, m)
}

// Create implements storage.Interface.
func (m *metered) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if err := m.meter.MayWrite(ctx, m.cached); err != nil {
		return err
	}
	return m.Interface.Create(m.in(ctx), key, obj, out, ttl)
}

// GuaranteedUpdate implements storage.Interface.
func (m *metered) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object,
) error {
	asked := tryUpdate
	if refused := m.meter.MayWrite(ctx, m.cached); refused != nil {
		asked = func(current runtime.Object, res storage.ResponseMeta) (runtime.Object, *uint64, error) {
			deletes := stageOf(current)
			updated, ttl, err := tryUpdate(current, res)
			if err == nil && stageOf(updated) == deletes {
				return nil, nil, refused
			}
			return updated, ttl, err
		}
	}
	return m.Interface.GuaranteedUpdate(m.in(ctx), key, destination, ignoreNotFound, preconditions, asked, cached)
}

// stage is how far an object is on its way to be deleted. Each object goes through few.
type stage struct {
	deleted    bool
	finalizers int
}

func stageOf(obj runtime.Object) stage {
	of, err := meta.Accessor(obj)
	if err != nil || of.GetDeletionTimestamp() == nil {
		return stage{}
	}
	return stage{true, len(of.GetFinalizers())}
}

// Delete implements storage.Interface.
func (m *metered) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	return m.Interface.Delete(m.in(ctx), key, out, preconditions, validate, cached, opts)
}

// wrote tells the meter of the resource in ctx, if there is one, of a write.
func wrote(ctx context.Context, resp kubernetes.PutResponse, err error, bytes int) {
	if m, ok := ctx.Value(meterKey{}).(*metered); ok && err == nil && resp.Succeeded {
		m.meter.Wrote(ctx, m.cached, bytes)
	}
}

// unmetered lets everybody write.
type unmetered struct{}

func (unmetered) MayWrite(context.Context, bool) error { return nil }
func (unmetered) Wrote(context.Context, bool, int)     {}
func (unmetered) Saw(logicalcluster.Name, int)         {}

var _ Meter = unmetered{}
