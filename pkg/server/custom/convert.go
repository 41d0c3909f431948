package custom

import (
	"context"
	"fmt"

	"github.com/kcp-dev/logicalcluster/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/regent-project/regent/pkg/clusters"
)

// batchBytes is how much one call of a webhook is given at most, unless a single object has more.
const batchBytes = 256 << 10

func (v *view) groupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: v.kind.Group, Version: v.version}
}

func (v *view) apiVersion() string { return v.groupVersion().String() }

// converts reports whether a webhook has to convert an object to show it.
func (v *view) converts(o *object) bool { return v.webhook != nil && o.APIVersion != v.apiVersion() }

func versionOf(raw []byte) string {
	var head metav1.TypeMeta
	if utiljson.Unmarshal(raw, &head) != nil {
		return ""
	}
	return head.APIVersion
}

// shareAll returns the contents of objects for somebody who only reads them. What a webhook has to convert goes to it
// together.
func (v *view) shareAll(ctx context.Context, items []object) ([]map[string]any, error) {
	out := make([]map[string]any, len(items))
	var rest []int
	var raw [][]byte
	for i := range items {
		o := &items[i]
		if v.converts(o) && o.body != nil && o.body.form(v, o.ResourceVersion) == nil {
			rest, raw = append(rest, i), append(raw, o.body.raw)
			continue
		}
		content, err := v.share(ctx, o)
		if err != nil {
			return nil, err
		}
		out[i] = content
	}
	converted, err := v.convert(ctx, raw)
	if err != nil {
		return nil, err
	}
	for n, i := range rest {
		o, u := &items[i], converted[n]
		u.SetResourceVersion(o.ResourceVersion)
		o.body.keep(form{v, o.ResourceVersion, u.Object})
		out[i] = u.Object
	}
	return out, nil
}

// convert has the webhook convert stored objects to the view's version.
func (v *view) convert(ctx context.Context, raw [][]byte) ([]*unstructured.Unstructured, error) {
	out := make([]*unstructured.Unstructured, 0, len(raw))
	for from := 0; from < len(raw); {
		to, size := from, 0
		for to < len(raw) && (to == from || size+len(raw[to]) <= batchBytes) {
			size += len(raw[to])
			to++
		}
		batch, err := v.convertBatch(ctx, raw[from:to])
		if err != nil {
			return nil, err
		}
		out, from = append(out, batch...), to
	}
	return out, nil
}

func (v *view) convertBatch(ctx context.Context, raw [][]byte) ([]*unstructured.Unstructured, error) {
	batch, clusters := make([]unstructured.Unstructured, len(raw)), make([]string, len(raw))
	for i := range raw {
		u, err := v.asStored(raw[i])
		if err != nil {
			return nil, err
		}
		batch[i], clusters[i] = *u, u.GetAnnotations()[logicalcluster.AnnotationKey]
	}
	converted, err := v.webhook.convert(ctx, batch, v.groupVersion())
	if err != nil {
		return nil, err
	}
	out := make([]*unstructured.Unstructured, len(raw))
	for i := range converted {
		// a webhook may change annotations, but not this one: others trust it
		setCluster(&converted[i], clusters[i])
		encoded, err := converted[i].MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("encode what a webhook has converted: %w", err)
		}
		if out[i], err = v.read(encoded); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// asStored returns an object in the version in which it is stored, with that version's defaults.
func (v *view) asStored(raw []byte) (*unstructured.Unstructured, error) {
	gv, err := schema.ParseGroupVersion(versionOf(raw))
	if err != nil {
		return nil, fmt.Errorf("a custom object of no version: %w", err)
	}
	if v.hasLost(gv.String()) {
		return nil, apierrors.NewInternalError(errLost(v.kind, gv.Version))
	}
	if as := v.others[gv.Version]; as != nil {
		return as.read(raw)
	}
	obj, _, err := unstructured.UnstructuredJSONScheme.Decode(raw, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("a custom object that is no JSON: %w", err)
	}
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("a custom object was decoded as a %T", obj)
	}
	return u, nil
}

// forStorage returns an object in the version that is stored, and the view of that.
func (v *view) forStorage(ctx context.Context, u *unstructured.Unstructured) (*view, *unstructured.Unstructured, error) {
	if v.webhook == nil || v.webhook.storage == v.version {
		return v, u, nil
	}
	to := v.others[v.webhook.storage]
	converted, err := v.webhook.convert(ctx, []unstructured.Unstructured{*u}, to.groupVersion())
	if err != nil {
		return nil, nil, err
	}
	return to, &converted[0], nil
}

type storedKey struct{}

// withStored has views show objects that are stored in a version, and no others.
func withStored(ctx context.Context, apiVersion string) context.Context {
	return context.WithValue(ctx, storedKey{}, apiVersion)
}

// expected returns an error if an object is not stored in the version that withStored has said: somebody has changed it
// meanwhile.
func expected(ctx context.Context, o *object) error {
	want, ok := ctx.Value(storedKey{}).(string)
	if !ok || want == o.APIVersion {
		return nil
	}
	cluster, _ := clusters.From(ctx)
	return apierrors.NewConflict(schema.GroupResource{Group: o.GroupVersionKind().Group, Resource: o.Kind}, o.Name,
		fmt.Errorf("in %s it is stored in version %s by now, and not in %s any more", cluster, o.APIVersion, want))
}
