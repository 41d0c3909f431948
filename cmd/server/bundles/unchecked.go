package bundles

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/discovery"

	"github.com/regent-project/regent/pkg/server/bundle"
)

// isBulk reports whether an object is one of those that a workspace may have many of, and that no controller of the
// shard makes: these may be written unchecked.
func isBulk(key string) bool {
	return !isOfServer(key) && (strings.HasPrefix(key, "custom/") || strings.HasPrefix(key, "core/configmaps/") || strings.HasPrefix(key, "core/secrets/"))
}

// maxUnchecked is how many bytes of JSON an object may have that is written unchecked. etcd takes 1.5 MiB.
const maxUnchecked = 1 << 20

// mayWriteUnchecked returns an error if the user may not. It asks once the workspaces are there, because only in them
// it can be asked, and before there is anything in them.
func (i *importer) mayWriteUnchecked(ctx context.Context) error {
	if !i.options.Unchecked {
		return nil
	}
	for _, d := range i.places {
		if err := i.whileFrozen(ctx, d, func(context.Context, *frozen) error { return nil }); err != nil {
			return fmt.Errorf("write unchecked in %s, which is empty: delete it, and import without --unchecked: %w", d.to, err)
		}
	}
	return nil
}

func (i *importer) whileFrozen(ctx context.Context, d *destination, do func(context.Context, *frozen) error) error {
	of, err := discovery.NewDiscoveryClientForConfig(i.client.At(d.to))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	return whileFrozen(ctx, &frozen{client: of.RESTClient(), path: bundle.FreezePath}, do)
}

// writeUnchecked writes what a phase has of ConfigMaps, Secrets and custom objects as it was, but with new uids, while
// nobody else writes in the workspace. It leaves to createAll what is there already, what is of a kind or in a
// namespace that is not there, what has owners that come later, and what is large; and everything, if the freeze ends
// early or the server refuses something: the API says what.
func (i *importer) writeUnchecked(ctx context.Context, d *destination, phase int) error {
	if !i.options.Unchecked || d.bulk[phase] == 0 {
		return nil
	}
	err := i.whileFrozen(ctx, d, func(ctx context.Context, f *frozen) error {
		u := &unchecked{importer: i, to: d, frozen: f, there: map[schema.GroupVersionKind]map[string]bool{}}
		return u.write(ctx, phase)
	})
	if err != nil && ctx.Err() == nil {
		i.note(&i.report.Changed, d, "-", "what follows is created through the API, because it was not written unchecked: "+err.Error())
		return nil
	}
	return err
}

// unchecked writes objects of one phase into a workspace that is frozen.
type unchecked struct {
	*importer
	to     *destination
	frozen *frozen
	// there are the keys of what was there before, by kind. A kind that is not served has no map.
	there map[schema.GroupVersionKind]map[string]bool
	// sent are the keys and uids of those that are sent, or will be: what they own waits for them.
	sent []renewed
}

// renewed is what is known of an object that has a new uid.
type renewed struct {
	key      string
	was, uid types.UID
}

// write writes owners before what they own: a garbage collector that looks for an owner finds it.
func (u *unchecked) write(ctx context.Context, phase int) error {
	var waiting []*entry
	err := u.to.Each(func(o bundle.Object) error {
		if phaseOf(resourceOf(o.Key)) != phase || !isBulk(o.Key) {
			return nil
		}
		one, err := u.take(ctx, o)
		switch {
		case one == nil:
			return err
		case u.resolveOwners(u.to, one):
			return u.add(ctx, one)
		}
		waiting = append(waiting, one)
		return nil
	})
	if err == nil {
		err = u.flush(ctx)
	}
	for err == nil && len(waiting) > 0 {
		var later []*entry
		for _, one := range waiting {
			if !u.resolveOwners(u.to, one) {
				later = append(later, one)
			} else if err := u.add(ctx, one); err != nil {
				return err
			}
		}
		if len(later) == len(waiting) {
			return nil
		}
		waiting = later
		err = u.flush(ctx)
	}
	return err
}

// take makes a new object of one of the bundle. It returns nil for what is not written here.
func (u *unchecked) take(ctx context.Context, o bundle.Object) (*entry, error) {
	if o.Unreadable != "" || o.Deleted {
		return nil, nil
	}
	obj, err := u.decode(o)
	if err != nil || len(o.Object)+len(o.Sealed) > maxUnchecked || leftBehind(obj, resourceOf(o.Key)) != "" || !isOfKind(o.Key, obj.GroupVersionKind().GroupKind()) {
		return nil, err
	}
	there, err := u.thereOf(ctx, obj.GroupVersionKind())
	if err != nil || there == nil || there[nameIn(obj)] {
		return nil, err
	}
	if in := obj.GetNamespace(); in != "" {
		if namespaces, err := u.thereOf(ctx, corev1.SchemeGroupVersion.WithKind("Namespace")); err != nil || !namespaces["/"+in] {
			return nil, err
		}
	}
	one := &entry{o.Key, obj.GetUID(), obj}
	obj.SetUID(uuid.NewUUID())
	obj.SetCreationTimestamp(metav1.Now())
	obj.SetLabels(ofUsers(obj.GetLabels()))
	annotations := ofUsers(obj.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[logicalcluster.AnnotationKey] = u.to.cluster
	obj.SetAnnotations(annotations)
	return one, nil
}

// isOfKind reports whether an object that may be written unchecked is of the kind that its key says.
func isOfKind(key string, kind schema.GroupKind) bool {
	switch {
	case strings.HasPrefix(key, "custom/"):
		return strings.HasPrefix(key, "custom/"+kind.Group+"/"+kind.Kind+"/")
	case strings.HasPrefix(key, "core/secrets/"):
		return kind == schema.GroupKind{Kind: "Secret"}
	}
	return kind == schema.GroupKind{Kind: "ConfigMap"}
}

// nameIn names an object among those of its kind.
func nameIn(obj *unstructured.Unstructured) string { return obj.GetNamespace() + "/" + obj.GetName() }

// thereOf returns what is there of a kind: somebody may have been quicker, such as a controller elsewhere
// that prepares new workspaces. It returns nil if the kind is not served.
func (u *unchecked) thereOf(ctx context.Context, kind schema.GroupVersionKind) (map[string]bool, error) {
	if there, ok := u.there[kind]; ok {
		return there, nil
	}
	var list *unstructured.UnstructuredList
	err := patiently(ctx, func() error {
		mapping, err := u.to.api.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return err
		}
		list, err = u.to.api.client.Resource(mapping.Resource).List(ctx, metav1.ListOptions{})
		return err
	})
	switch {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		u.there[kind] = nil
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list what is there of %s: %w", kind, err)
	}
	there := make(map[string]bool, len(list.Items))
	for n := range list.Items {
		there[nameIn(&list.Items[n])] = true
	}
	u.there[kind] = there
	return there, nil
}

func (u *unchecked) add(ctx context.Context, one *entry) error {
	text, err := json.Marshal(one.obj.Object)
	if err != nil {
		return fmt.Errorf("%s: %w", one.key, err)
	}
	u.sent = append(u.sent, renewed{one.key, one.uid, one.obj.GetUID()})
	return u.frozen.add(ctx, bundle.Object{Key: one.key, Object: text})
}

// flush returns once all is written, and may be owners.
func (u *unchecked) flush(ctx context.Context) error {
	if err := u.frozen.flush(ctx); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, one := range u.sent {
		u.uids[one.was] = one.uid
		u.to.written[one.key] = true
	}
	u.report.Created += len(u.sent)
	u.sent = nil
	return nil
}
