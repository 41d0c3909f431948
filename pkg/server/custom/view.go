package custom

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/clusters"
)

// view is the stored objects of one kind as one version of one schema shows them. It decodes and encodes with
// upstream's codec of that version, which converts, prunes and sets defaults. Beneath it are the layers of all
// resources: so custom objects are fenced and kept apart as all others.
//
// A view has no goroutine and nothing to close: one that nobody uses any more is garbage.
type view struct {
	storage.Interface
	// identifier tells views apart.
	identifier runtime.Identifier
	kind       schema.GroupKind
	namespaced bool
	version    string
	codec      runtime.Codec
	// empty makes an object for codec to decode into. It tells the codec which version is wanted.
	empty func() runtime.Object
	// webhook converts what is stored in other versions. If it is nil, codec does. others are the views of all
	// versions.
	webhook *converter
	others  versions
	lookups lookups
}

// versions are the views of a content, by their versions. Nobody changes them after the first request.
type versions map[string]*view

// decode returns the content of stored bytes, for somebody who may modify it.
func (v *view) decode(ctx context.Context, raw []byte) (*unstructured.Unstructured, error) {
	if v.webhook == nil {
		return v.readAny(raw)
	}
	if versionOf(raw) == v.apiVersion() {
		return v.read(raw)
	}
	converted, err := v.convert(ctx, [][]byte{raw})
	if err != nil {
		return nil, err
	}
	return converted[0], nil
}

// read decodes bytes without a webhook.
func (v *view) read(raw []byte) (*unstructured.Unstructured, error) {
	obj, _, err := v.codec.Decode(raw, nil, v.empty())
	if err != nil {
		return nil, err
	}
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("a custom object was decoded as a %T", obj)
	}
	return u, nil
}

// show returns an object for somebody who may modify it.
func (v *view) show(ctx context.Context, o *object) (*unstructured.Unstructured, error) {
	if o.body == nil {
		return nil, errNoObject
	}
	if err := expected(ctx, o); err != nil {
		return nil, err
	}
	u, err := v.decode(ctx, o.body.raw)
	if err != nil {
		return nil, err
	}
	u.SetResourceVersion(o.ResourceVersion)
	return u, nil
}

var errNoObject = errors.New("there is no custom object")

// share returns the content of an object for somebody who only reads it. Content of the same object is shared, as
// upstream's watch cache shares its objects.
func (v *view) share(ctx context.Context, o *object) (map[string]any, error) {
	if o.body == nil {
		return nil, errNoObject
	}
	if content := o.body.form(v, o.ResourceVersion); content != nil {
		return content, nil
	}
	u, err := v.show(ctx, o)
	if err != nil {
		return nil, err
	}
	o.body.keep(form{v, o.ResourceVersion, u.Object})
	return u.Object, nil
}

// isLeftover reports whether an object was left behind by another definition of the kind, with another scope, whose
// finalizer somebody has removed by hand. It cannot be reached by a path of this one.
func (v *view) isLeftover(ctx context.Context, o *object) bool {
	return v.namespaced != (o.Namespace != "") && kindsIn(ctx) == nil
}

// fill puts what storage has returned into a caller's object, which may be nil.
func (v *view) fill(ctx context.Context, out runtime.Object, o *object) error {
	u, ok := out.(*unstructured.Unstructured)
	if !ok || u == nil {
		return nil
	}
	visible, err := v.show(ctx, o)
	if err != nil {
		return err
	}
	u.Object = visible.Object
	return nil
}

// encode returns an object as it is stored. The logical cluster is in the bytes already, so that storage need not write
// it into them.
func (v *view) encode(ctx context.Context, obj runtime.Object) (*object, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("a %T is no custom object", obj)
	}
	u.SetResourceVersion("")
	to, u, err := v.forStorage(ctx, u)
	if err != nil {
		return nil, err
	}
	cluster, _ := clusters.From(ctx)
	setCluster(u, cluster.String())
	raw, err := runtime.Encode(to.codec, u)
	if err != nil {
		return nil, err
	}
	out := &object{}
	return out, out.parse(bytes.TrimRight(raw, "\n"))
}

// setCluster writes the logical cluster into an object, or leaves it out if it is empty.
func setCluster(u *unstructured.Unstructured, cluster string) {
	annotations := u.GetAnnotations()
	if annotations[logicalcluster.AnnotationKey] == cluster {
		return
	}
	own := map[string]string{}
	maps.Copy(own, annotations)
	if own[logicalcluster.AnnotationKey] = cluster; cluster == "" {
		delete(own, logicalcluster.AnnotationKey)
	}
	u.SetAnnotations(own)
}

// Create implements storage.Interface.
func (v *view) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if version, err := v.Versioner().ObjectResourceVersion(obj); err == nil && version != 0 {
		return storage.ErrResourceVersionSetOnCreate
	}
	in, err := v.encode(ctx, obj)
	if err != nil {
		return err
	}
	created := &object{}
	if err := whileDefined(ctx, func(ctx context.Context) error { return v.Interface.Create(ctx, key, in, created, ttl) }); err != nil {
		return err
	}
	return v.fill(ctx, out, created)
}

// Delete implements storage.Interface.
func (v *view) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, opts storage.DeleteOptions,
) error {
	deleted := &object{}
	err := v.Interface.Delete(ctx, key, deleted, preconditions, func(ctx context.Context, obj runtime.Object) error {
		visible, err := v.show(ctx, obj.(*object))
		if err != nil {
			return err
		}
		return validate(ctx, visible)
	}, nil, opts)
	if err != nil {
		return err
	}
	return v.fill(ctx, out, deleted)
}

// GuaranteedUpdate implements storage.Interface.
func (v *view) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, _ runtime.Object,
) error {
	updated := &object{}
	update := func(current runtime.Object, res storage.ResponseMeta) (runtime.Object, *uint64, error) {
		visible := v.empty()
		if o := current.(*object); o.body != nil {
			u, err := v.show(ctx, o)
			if err != nil {
				return nil, nil, err
			}
			v.keepManagers(u)
			visible = u
		}
		wanted, ttl, err := tryUpdate(visible, res)
		if err != nil {
			return nil, nil, err
		}
		in, err := v.encode(ctx, wanted)
		return in, ttl, err
	}
	err := whileDefined(ctx, func(ctx context.Context) error {
		return v.Interface.GuaranteedUpdate(ctx, key, updated, ignoreNotFound, preconditions, update, nil)
	})
	if err != nil {
		return err
	}
	return v.fill(ctx, destination, updated)
}

// Get implements storage.Interface.
func (v *view) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	o := &object{}
	if err := v.Interface.Get(ctx, key, opts, o); err != nil {
		return err
	}
	u, ok := out.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("a custom object cannot be read as a %T", out)
	}
	if o.body == nil { // and not finding one is no error
		u.Object = nil
		return nil
	}
	content, err := v.share(ctx, o)
	u.Object = content
	return err
}

// GetList implements storage.Interface.
func (v *view) GetList(ctx context.Context, key string, opts storage.ListOptions, out runtime.Object) error {
	list, ok := out.(*unstructured.UnstructuredList)
	if !ok {
		return fmt.Errorf("custom objects cannot be listed as a %T", out)
	}
	predicate, failed := v.predicate(ctx, opts.Predicate)
	opts.Predicate = predicate
	found := &objectList{}
	if err := v.Interface.GetList(ctx, key, opts, found); err != nil {
		return err
	}
	if err := failed.get(); err != nil {
		return err
	}
	contents, err := v.shareAll(ctx, slices.DeleteFunc(found.Items, func(o object) bool { return v.isLeftover(ctx, &o) }))
	if err != nil {
		return err
	}
	list.Items = make([]unstructured.Unstructured, len(contents))
	for i, content := range contents {
		list.Items[i].Object = content
	}
	list.SetResourceVersion(found.ResourceVersion)
	list.SetContinue(found.Continue)
	list.SetRemainingItemCount(found.RemainingItemCount)
	return nil
}

// EnableResourceSizeEstimation implements storage.Interface. What lists cost is known for all custom objects together.
func (v *view) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }

var _ storage.Interface = (*view)(nil)
