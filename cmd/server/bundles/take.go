package bundles

import (
	"context"
	"maps"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	"github.com/kcp-dev/sdk/apis/core"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/regent-project/regent/pkg/server/bundle"
)

// take decides what becomes of an object of a bundle. It returns nil if nothing is to be created.
func (i *importer) take(ctx context.Context, d *destination, o bundle.Object) (*entry, error) {
	switch {
	case o.Unreadable != "":
		i.note(&i.report.Refused, d, o.Key, "it could not be read when it was exported: "+o.Unreadable)
		return nil, nil
	case o.Deleted:
		return nil, i.remove(ctx, d, o.Key)
	}
	obj, err := i.decode(o)
	if err != nil {
		return nil, err
	}
	one := &entry{o.Key, obj.GetUID(), obj}
	if why := leftBehind(obj, resourceOf(o.Key)); why != "" {
		i.leave(resourceOf(o.Key), why)
		return nil, nil
	}
	if isOfServer(o.Key) { // each has its own
		return nil, nil
	}
	switch resourceOf(o.Key) {
	case "workspaces.tenancy.kcp.io":
		if i.only == nil && i.byName[d.from.Join(obj.GetName()).String()] == nil {
			i.leave(resourceOf(o.Key), "they were not exported with this one: use --recursive")
			return nil, nil
		}
		delete(obj.Object, "spec") // it is made already
	case "apibindings.apis.kcp.io":
		i.redirect(obj)
	}
	clean(obj)
	return one, nil
}

// remove deletes what every workspace has, and this one had no more.
func (i *importer) remove(ctx context.Context, d *destination, key string) error {
	deleted, err := d.api.remove(ctx, key)
	switch {
	case ctx.Err() != nil:
		return err
	case err != nil:
		i.note(&i.report.Refused, d, key, "it cannot be deleted: "+err.Error())
	case deleted:
		i.mu.Lock()
		defer i.mu.Unlock()
		i.report.Deleted++
	}
	return nil
}

// leftBehind says why an object is of no use in another place; empty: it is.
func leftBehind(obj *unstructured.Unstructured, resource string) string {
	switch {
	case obj.GetDeletionTimestamp() != nil:
		return "they were being deleted"
	case resource == "events" || resource == "events.events.k8s.io":
		return "they are about objects of the old place"
	case resource == "secrets" && obj.Object["type"] == string(corev1.SecretTypeServiceAccountToken):
		return "they are tokens of accounts of the old place: make new ones"
	}
	return ""
}

// redirect has a binding name the export in a workspace that is imported, too, where that is now.
func (i *importer) redirect(binding *unstructured.Unstructured) {
	at := []string{"spec", "reference", "export", "path"}
	path, _, _ := unstructured.NestedString(binding.Object, at...)
	if d := i.byName[path]; d != nil {
		// there is a string already
		_ = unstructured.SetNestedField(binding.Object, d.to.String(), at...)
	}
}

// clean removes what the server says of an object.
func clean(obj *unstructured.Unstructured) {
	for _, field := range []string{
		"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds",
	} {
		unstructured.RemoveNestedField(obj.Object, "metadata", field)
	}
	obj.SetAnnotations(ofUsers(obj.GetAnnotations()))
	obj.SetLabels(ofUsers(obj.GetLabels()))
}

// ofUsers returns the annotations, or labels, that the server does not write itself.
func ofUsers(all map[string]string) map[string]string {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(key, _ string) bool {
		return strings.HasPrefix(key, "internal.") || key == logicalcluster.AnnotationKey || key == core.LogicalClusterPathAnnotationKey
	})
	if len(out) == 0 {
		return nil
	}
	return out
}
