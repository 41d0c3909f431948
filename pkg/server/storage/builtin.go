package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"reflect"
	"strconv"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/premise"
)

// BuiltIn is what the server knows of logical clusters that have built-in objects (see clusters.BuiltIn).
type BuiltIn struct {
	// Cached returns the LogicalCluster of a cluster from memory, or reads it if it is not there. Stored reads it.
	// Their errors are NotFound if there is none.
	Cached, Stored func(ctx context.Context, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error)
	// Follow calls a function with each LogicalCluster that goes, from now on.
	Follow func(gone func(*corev1alpha1.LogicalCluster)) (stop func())
	// Empties reports whether a request is of what empties logical clusters that are being deleted. In these it
	// sees what is stored, and that alone.
	Empties func(ctx context.Context) bool
	// RootCA is that of clusters.BuiltIn.
	RootCA string
}

// ServeBuiltIn makes all resources show built-in objects from now on. It is called once. The returned function ends
// what it has begun.
func (c *Client) ServeBuiltIn(b BuiltIn) (stop func()) {
	c.builtIn.Store(&b)
	return b.Follow(c.gone.tell)
}

type storedOnlyKey struct{}

// StoredOnly returns a context in which reads show what is stored: no built-in objects, and the tombstones of deleted
// ones. It is for the server's own caches.
func StoredOnly(ctx context.Context) context.Context {
	return context.WithValue(ctx, storedOnlyKey{}, true)
}

// builtIn serves objects that each logical cluster has until somebody changes them. Nobody can tell them from stored
// ones. What is stored under the key of a built-in object hides it:
//
//	built in --first change: as it is--> stored --changes--> stored
//	built in, stored --deletion--> tombstone --creation--> stored
//
// A first change is two writes: the first stores the object as it was, so that watches see a change and not a creation,
// and decide by what it was whether they select it. A tombstone is an object of the resource, too. So all that is known
// of a key is under that key, and whoever reads at some revision sees what was true then. In a logical cluster that is
// being deleted nothing can be stored any more that was not.
type builtIn struct {
	storage.Interface // above the router, and below the finalizers
	client            *Client
	resource          schema.GroupResource
	prefix            string
	// key returns an object's key, without a cluster.
	key func(runtime.Object) (string, error)
	of  func(clusters.BuiltIn) []runtime.Object
	// etcd is below the watch cache and the router.
	etcd    storage.Interface
	newFunc func() runtime.Object
	newList func() runtime.Object
}

// objects returns what is built into the context's logical cluster, whatever is stored, and the LogicalCluster. It
// returns nothing if the context wants to see what is stored only.
func (b *builtIn) objects(ctx context.Context) ([]runtime.Object, *corev1alpha1.LogicalCluster, error) {
	facts, cluster, ok := b.facts(ctx)
	if !ok || cluster == clusters.Wildcard || clusters.IsSystem(cluster) {
		return nil, nil, nil
	}
	lc, err := facts.Cached(ctx, cluster)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("what is built into logical cluster %s: %w", cluster, err)
	}
	if lc.DeletionTimestamp != nil && facts.Empties(ctx) {
		return nil, nil, nil
	}
	return b.of(clusters.BuiltIn{LogicalCluster: lc, RootCA: facts.RootCA}), lc, nil
}

// facts returns the context's cluster, and is not ok if only what is stored is to be seen.
func (b *builtIn) facts(ctx context.Context) (*BuiltIn, logicalcluster.Name, bool) {
	facts := b.client.builtIn.Load()
	if facts == nil || ctx.Value(storedOnlyKey{}) != nil {
		return nil, "", false
	}
	cluster, ok := clusters.From(ctx)
	return facts, cluster, ok
}

// at returns what is built in at a key, whatever is stored there, and nil if nothing is.
func (b *builtIn) at(ctx context.Context, key string) (runtime.Object, *corev1alpha1.LogicalCluster, error) {
	if !clusters.MayBeBuiltIn(path.Base(key)) {
		return nil, nil, nil
	}
	all, lc, err := b.objects(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, obj := range all {
		if of, err := b.key(obj); err == nil && of == key {
			return obj, lc, nil
		}
	}
	return nil, nil, nil
}

// Get implements storage.Interface.
func (b *builtIn) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	obj, _, err := b.at(ctx, key)
	if err != nil {
		return err
	}
	if obj == nil {
		return b.Interface.Get(ctx, key, opts, out)
	}
	must := opts
	must.IgnoreNotFound = false
	err = b.Interface.Get(ctx, key, must, out)
	switch {
	case storage.IsNotFound(err):
		return set(out, obj)
	case err != nil || !isTombstone(out):
		return err
	case opts.IgnoreNotFound:
		return runtime.SetZeroValue(out)
	}
	return storage.NewKeyNotFoundError(key, 0)
}

// Create implements storage.Interface. What is built in exists, unless it was deleted.
func (b *builtIn) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	here, _, err := b.at(ctx, key)
	if err != nil {
		return err
	}
	if here == nil {
		return b.Interface.Create(ctx, key, obj, out, ttl)
	}
	err = b.Interface.GuaranteedUpdate(ctx, key, out, false, nil, func(there runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		if !isTombstone(there) {
			return nil, nil, storage.NewKeyExistsError(key, 0)
		}
		return withoutTombstone(obj.DeepCopyObject()), nil, nil
	}, nil)
	if storage.IsNotFound(err) {
		return storage.NewKeyExistsError(key, 0)
	}
	return err
}

// GuaranteedUpdate implements storage.Interface.
func (b *builtIn) GuaranteedUpdate(
	ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object,
) error {
	obj, lc, err := b.at(ctx, key)
	if err != nil {
		return err
	}
	if obj == nil {
		return b.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, tryUpdate, cached)
	}
	t := &change{key: key, ignoreNotFound: ignoreNotFound, empty: b.newFunc, update: tryUpdate}
	for {
		err := b.Interface.GuaranteedUpdate(ctx, key, out, false, preconditions, t.try, nil)
		if !t.missing(err) {
			return err
		}
		if err := preconditions.Check(key, obj); err != nil {
			return err
		}
		version, err := b.Versioner().ObjectResourceVersion(obj)
		if err != nil {
			return err
		}
		changed, _, err := tryUpdate(obj.DeepCopyObject(), storage.ResponseMeta{ResourceVersion: version})
		if err != nil {
			return err
		}
		if equality.Semantic.DeepEqual(changed, obj) {
			return set(out, obj)
		}
		stored := b.newFunc()
		if lc, err = b.store(ctx, key, obj, stored, lc); err == nil {
			return b.Interface.GuaranteedUpdate(ctx, key, out, false, asBuiltIn(preconditions, obj, stored), showing(obj, stored, t.try), nil)
		}
		if !storage.IsExist(err) {
			return err
		}
	}
}

// change is an update of what may be stored or built in, or deleted.
type change struct {
	key            string
	ignoreNotFound bool
	empty          func() runtime.Object
	update         storage.UpdateFunc
	refusal        error // the last error of try
}

// try updates what is stored. To whoever updates, a tombstone is nothing.
func (a *change) try(there runtime.Object, res storage.ResponseMeta) (out runtime.Object, ttl *uint64, err error) {
	defer func() { a.refusal = err }()
	if isTombstone(there) {
		if !a.ignoreNotFound {
			return nil, nil, storage.NewKeyNotFoundError(a.key, 0)
		}
		there, res = a.empty(), storage.ResponseMeta{}
	}
	if out, ttl, err = a.update(there, res); err != nil {
		return nil, nil, err
	}
	return withoutTombstone(out), ttl, nil
}

// missing reports whether an error says that nothing is stored, not even a tombstone.
func (a *change) missing(err error) bool {
	return storage.IsNotFound(err) && !errors.Is(err, a.refusal)
}

// store stores what was only built in, unless the logical cluster is being deleted. It returns the LogicalCluster by
// which that was decided.
func (b *builtIn) store(ctx context.Context, key string, obj, out runtime.Object, lc *corev1alpha1.LogicalCluster) (*corev1alpha1.LogicalCluster, error) {
	for range maxDecisions {
		if lc.DeletionTimestamp != nil {
			return lc, apierrors.NewForbidden(b.resource, nameOf(obj), fmt.Errorf("logical cluster %q is being deleted: what nobody has changed before cannot be changed any more", logicalcluster.From(lc)))
		}
		revision, err := strconv.ParseInt(lc.ResourceVersion, 10, 64)
		if err != nil {
			return lc, fmt.Errorf("logical cluster %q: %w", logicalcluster.From(lc), err)
		}
		fresh := obj.DeepCopyObject()
		if err := b.Versioner().PrepareObjectForStorage(fresh); err != nil {
			return lc, err
		}
		when := premise.Condition{Resource: corev1alpha1.Resource("logicalclusters"), Cluster: logicalcluster.From(lc), Name: corev1alpha1.LogicalClusterName, Revision: revision}
		if err = b.Interface.Create(WithCondition(ctx, when), key, fresh, out, 0); !errors.Is(err, ErrConditionUnmet) {
			return lc, err
		}
		cluster := logicalcluster.From(lc)
		lc, err = b.client.builtIn.Load().Stored(ctx, cluster)
		if apierrors.IsNotFound(err) {
			return nil, storage.NewKeyNotFoundError(key, 0)
		}
		if err != nil {
			return nil, fmt.Errorf("the LogicalCluster of %s: %w", cluster, err)
		}
	}
	return lc, apierrors.NewTimeoutError(fmt.Sprintf("the logical cluster changed each of the %d times that this was to be stored, and nothing was written: try again", maxDecisions), 1)
}

// Delete implements storage.Interface.
func (b *builtIn) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	obj, lc, err := b.at(ctx, key)
	if err != nil {
		return err
	}
	if obj == nil || opts.ExpectTransformOrDecodeError {
		return b.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
	}
	for {
		var last runtime.Object
		now := b.newFunc()
		t := &change{key: key, update: func(there runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
			if err := validate(ctx, there); err != nil {
				return nil, nil, err
			}
			last = there.DeepCopyObject()
			return there, nil, nil
		}}
		err := b.Interface.GuaranteedUpdate(ctx, key, now, false, preconditions, func(there runtime.Object, res storage.ResponseMeta) (runtime.Object, *uint64, error) {
			if _, _, err := t.try(there, res); err != nil {
				return nil, nil, err
			}
			tombstone, err := b.tombstone(last)
			return tombstone, nil, err
		}, nil)
		if err == nil {
			return deleted(out, last, now)
		}
		if !t.missing(err) {
			return err
		}
		if err := preconditions.Check(key, obj); err != nil {
			return err
		}
		if err := validate(ctx, obj); err != nil {
			return err
		}
		tombstone, err := b.tombstone(obj)
		if err != nil {
			return err
		}
		if lc, err = b.store(ctx, key, tombstone, now, lc); err == nil {
			return deleted(out, obj, now)
		}
		if !storage.IsExist(err) {
			return err
		}
	}
}

// tombstone returns what is stored in place of an object that is deleted: its identity, and nothing by which it could
// still have an effect.
func (b *builtIn) tombstone(of runtime.Object) (runtime.Object, error) {
	was, err := meta.Accessor(of)
	if err != nil {
		return nil, err
	}
	out := b.newFunc()
	is, err := meta.Accessor(out)
	if err != nil {
		return nil, err
	}
	is.SetNamespace(was.GetNamespace())
	is.SetName(was.GetName())
	is.SetUID(was.GetUID())
	is.SetCreationTimestamp(was.GetCreationTimestamp())
	is.SetAnnotations(map[string]string{logicalcluster.AnnotationKey: logicalcluster.From(was).String()})
	last, err := json.Marshal(of)
	if err != nil {
		return nil, fmt.Errorf("what %s was: %w", was.GetName(), err)
	}
	if len(last) > largestLast {
		if last, err = json.Marshal(out); err != nil {
			return nil, err
		}
	}
	clusters.SetTombstone(is, string(last))
	return out, nil
}

// largestLast is how large an object may be of which a tombstone keeps what it was, for watches.
const largestLast = 64 << 10

// last returns what the object of a tombstone was, at the revision of its deletion.
func (b *builtIn) last(tombstone metav1.Object) (runtime.Object, error) {
	out := b.newFunc()
	if err := json.Unmarshal([]byte(clusters.LastOf(tombstone)), out); err != nil {
		return nil, fmt.Errorf("what %s was: %w", tombstone.GetName(), err)
	}
	is, err := meta.Accessor(out)
	if err != nil {
		return nil, err
	}
	is.SetResourceVersion(tombstone.GetResourceVersion())
	out.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return out, nil
}

// deleted answers with what an object was, at the revision of its deletion.
func deleted(out, last, now runtime.Object) error {
	if err := set(out, last); err != nil {
		return err
	}
	is, err := meta.Accessor(out)
	if err != nil {
		return err
	}
	is.SetResourceVersion(versionOf(now))
	return nil
}

// asBuiltIn returns preconditions that an object meets which was just stored as it is built in, if that meets them.
func asBuiltIn(p *storage.Preconditions, obj, stored runtime.Object) *storage.Preconditions {
	if p == nil || p.ResourceVersion == nil || *p.ResourceVersion != versionOf(obj) {
		return p
	}
	out, version := *p, versionOf(stored)
	out.ResourceVersion = &version
	return &out
}

// showing has try see the resourceVersion that clients know, as long as the object is as it was stored.
func showing(obj, stored runtime.Object, try storage.UpdateFunc) storage.UpdateFunc {
	return func(there runtime.Object, res storage.ResponseMeta) (runtime.Object, *uint64, error) {
		if versionOf(there) == versionOf(stored) {
			is, err := meta.Accessor(there)
			if err != nil {
				return nil, nil, err
			}
			is.SetResourceVersion(versionOf(obj))
		}
		return try(there, res)
	}
}

func withoutTombstone(obj runtime.Object) runtime.Object {
	if is, err := meta.Accessor(obj); err == nil {
		clusters.SetTombstone(is, "")
	}
	return obj
}

func isTombstone(obj runtime.Object) bool {
	is, err := meta.Accessor(obj)
	return err == nil && clusters.IsTombstone(is)
}

func versionOf(obj runtime.Object) string {
	is, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return is.GetResourceVersion()
}

func nameOf(obj runtime.Object) string {
	is, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return is.GetName()
}

// set makes out what obj is.
func set(out, obj runtime.Object) error {
	to, from := reflect.ValueOf(out), reflect.ValueOf(obj)
	if to.Kind() != reflect.Pointer || to.Type() != from.Type() {
		return fmt.Errorf("a %T cannot be read as a %T", obj, out)
	}
	to.Elem().Set(from.Elem())
	return nil
}

var _ storage.Interface = (*builtIn)(nil)
