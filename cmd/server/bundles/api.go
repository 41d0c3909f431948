package bundles

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/retry"
)

// manager is what managedFields call this program.
const manager = "regent-import"

// api is a client of one workspace.
type api struct {
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
	// disco says which resources have a status of their own.
	disco discovery.CachedDiscoveryInterface
}

func newAPI(config *rest.Config) (*api, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // the server says how much is too much
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	live, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	cached := memory.NewMemCacheClient(live)
	return &api{client, restmapper.NewDeferredDiscoveryRESTMapper(cached), cached}, nil
}

// of returns the client of an object's resource.
func (a *api) of(obj *unstructured.Unstructured) (dynamic.ResourceInterface, *meta.RESTMapping, error) {
	kind := obj.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, nil, err
	}
	return a.in(mapping, obj.GetNamespace()), mapping, nil
}

func (a *api) in(mapping *meta.RESTMapping, namespace string) dynamic.ResourceInterface {
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return a.client.Resource(mapping.Resource).Namespace(namespace)
	}
	return a.client.Resource(mapping.Resource)
}

// put creates an object, with its status if that is written by clients. If it is there already, as what every workspace
// has, it is updated.
func (a *api) put(ctx context.Context, obj *unstructured.Unstructured, withStatus bool) (out *unstructured.Unstructured, updated bool, err error) {
	client, mapping, err := a.of(obj)
	if err != nil {
		return nil, false, err
	}
	err = patiently(ctx, func() error {
		out, err = client.Create(ctx, obj, metav1.CreateOptions{FieldManager: manager})
		if updated = apierrors.IsAlreadyExists(err); updated {
			out, err = a.update(ctx, client, obj)
		}
		return err
	})
	if err != nil || !withStatus || obj.Object["status"] == nil || !a.hasStatus(mapping.Resource) {
		return out, updated, err
	}
	return out, updated, patiently(ctx, func() error {
		with := obj.DeepCopy()
		with.SetResourceVersion(out.GetResourceVersion())
		with.SetUID(out.GetUID())
		_, err := client.UpdateStatus(ctx, with, metav1.UpdateOptions{FieldManager: manager})
		if apierrors.IsConflict(err) { // a controller was quicker: what it says is newer
			return nil
		}
		return err
	})
}

// update gives what is there the content of an object, also if others write it at the same time.
func (a *api) update(ctx context.Context, client dynamic.ResourceInterface, obj *unstructured.Unstructured) (out *unstructured.Unstructured, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		out, err = a.updateOnce(ctx, client, obj)
		return err
	})
	return out, err
}

// updateOnce gives what is there the content of an object. Of a Workspace it is labels and annotations only.
func (a *api) updateOnce(ctx context.Context, client dynamic.ResourceInterface, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	there, err := client.Get(ctx, obj.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	next := obj.DeepCopy()
	if obj.GetKind() == "Workspace" {
		next = there.DeepCopy()
		next.SetLabels(merged(there.GetLabels(), obj.GetLabels()))
		next.SetAnnotations(merged(there.GetAnnotations(), obj.GetAnnotations()))
	}
	next.SetResourceVersion(there.GetResourceVersion())
	next.SetUID(there.GetUID())
	if next.GetFinalizers() == nil {
		next.SetFinalizers(there.GetFinalizers())
	}
	return client.Update(ctx, next, metav1.UpdateOptions{FieldManager: manager})
}

// merged returns labels, or annotations, that are there, with those of users as they should be. What Regent and kcp say
// of a Workspace by others stays.
func merged(there, users map[string]string) map[string]string {
	out := maps.Clone(there)
	if out == nil {
		out = map[string]string{}
	}
	for key, value := range users {
		domain, _, _ := strings.Cut(key, "/")
		if domain = "." + domain; !strings.HasSuffix(domain, ".kcp.io") && !strings.HasSuffix(domain, ".regent.dev") {
			out[key] = value
		}
	}
	return out
}

// remove deletes what every workspace has, and reports whether it was there.
func (a *api) remove(ctx context.Context, key string) (deleted bool, err error) {
	s := strings.Split(key, "/")
	group := s[0]
	if group == "core" {
		group = ""
	}
	kind, err := a.mapper.KindFor(schema.GroupVersionResource{Group: group, Resource: s[1]})
	if err != nil {
		return false, fmt.Errorf("delete %s: %w", key, err)
	}
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return false, fmt.Errorf("delete %s: %w", key, err)
	}
	err = patiently(ctx, func() error {
		return a.in(mapping, s[len(s)-2]).Delete(ctx, s[len(s)-1], metav1.DeleteOptions{})
	})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// hasStatus reports whether the status of a resource's objects is written by itself.
func (a *api) hasStatus(resource schema.GroupVersionResource) bool {
	all, err := a.disco.ServerResourcesForGroupVersion(resource.GroupVersion().String())
	if err != nil {
		return false
	}
	for _, r := range all.APIResources {
		if r.Name == resource.Resource+"/status" {
			return true
		}
	}
	return false
}

// patiently calls do until it returns no error that may pass. A server that cannot be reached, or is busy, is waited
// for until ctx ends. One that fails inside, because of a webhook perhaps, is waited for no longer than patience.
func patiently(ctx context.Context, do func() error) error {
	for began := time.Now(); ; {
		err := do()
		if err == nil || meta.IsNoMatchError(err) || !IsPassing(err) || apierrors.IsInternalError(err) && time.Since(began) > patience {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}
