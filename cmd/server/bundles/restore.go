package bundles

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/regent-project/regent/cmd/server/workspaces"
	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/bundle"
)

// RestoreOptions say what is put back.
type RestoreOptions struct {
	ImportOptions
	// Only are keys, or beginnings of keys that end with a slash. Namespace has that namespace and all in it. With
	// neither everything is put back.
	Only      []string
	Namespace string
	// Prune: what was not there then is deleted.
	Prune bool
	// Plan: nothing is done, and the report says what would be.
	Plan bool
}

// selects reports whether an object is to be put back.
func (o *RestoreOptions) selects(key string) bool {
	if o.Namespace == "" && len(o.Only) == 0 {
		return true
	}
	s := strings.Split(key, "/")
	if o.Namespace != "" && (key == "core/namespaces/"+o.Namespace || s[len(s)-2] == o.Namespace && len(s) > 3 && (s[0] != "custom" || len(s) > 4)) {
		return true
	}
	return slices.ContainsFunc(o.Only, func(only string) bool {
		return key == only || strings.HasSuffix(only, "/") && strings.HasPrefix(key, only)
	})
}

// Restored is what has become, or would become, of a workspace that is put back.
type Restored struct {
	Report
	// Same is how many objects are as they were.
	Same int `json:"same"`
	// Create, Update and Delete are the keys of what is put back.
	Create []string `json:"create,omitempty"`
	Update []string `json:"update,omitempty"`
	Delete []string `json:"delete,omitempty"`
}

// Restore puts the objects of a workspace back to what they were then. now is a bundle of the workspace as it is: what
// is the same in both is left alone. Objects are created, with new uids, updated and deleted through the API. What
// others change meanwhile may be overwritten.
func Restore(ctx context.Context, client *workspaces.Client, then, now *bundle.Bundle, to logicalcluster.Path, o RestoreOptions) (*Restored, error) {
	r := &restorer{importer: importer{client: client, options: o.ImportOptions, uids: map[types.UID]types.UID{}, only: map[string]bool{}}, options: o}
	d := &destination{Bundle: then, from: logicalcluster.NewPath(then.Path), to: to, owned: map[types.UID]bool{}}
	r.planOne, r.planNew = func(then, now state) { r.planThen(d, then, now) }, r.planPruned
	err := r.pairUIDs(d.Bundle, now)
	if err == nil {
		err = r.plan(d, now)
	}
	if err == nil && !o.Plan {
		err = r.carryOut(ctx, d)
	}
	r.out.Report = r.report
	return &r.out, err
}

// restorer puts one workspace back.
type restorer struct {
	importer
	options RestoreOptions
	out     Restored
	// planOne decides about an object that was there then, and planNew about one that was not.
	planOne func(then, now state)
	planNew func(now state)
	// prune is what is deleted: no more of the objects than names them.
	prune []*entry
}

// state is what a bundle has of a key.
type state struct {
	bundle.Object
	obj *unstructured.Unstructured // nil: it is deleted, unreadable, or not there
}

// plan finds out what is to be done. It reads both bundles side by side, since either may have more than fits into
// memory.
func (r *restorer) plan(d *destination, now *bundle.Bundle) error {
	var failed error
	next, stop := iter.Pull(r.states(now, &failed))
	defer stop()
	there, more := next()
	for then := range r.states(d.Bundle, &failed) {
		for ; more && there.Key < then.Key; there, more = next() {
			r.planNew(there)
		}
		if !more || there.Key != then.Key {
			r.planOne(then, state{})
			continue
		}
		r.planOne(then, there)
		there, more = next()
	}
	for ; more; there, more = next() {
		r.planNew(there)
	}
	return failed
}

// pairUIDs finds out which uid what was there then has now, since owners are compared by it.
func (r *restorer) pairUIDs(then, now *bundle.Bundle) error {
	var failed error
	uids := map[string]types.UID{}
	for s := range r.states(now, &failed) {
		if s.obj != nil {
			uids[s.Key] = s.obj.GetUID()
		}
	}
	for s := range r.states(then, &failed) {
		if uid, ok := uids[s.Key]; ok && s.obj != nil {
			r.uids[s.obj.GetUID()] = uid
		}
	}
	return failed
}

// states returns what a bundle has. What is sealed for others is left out if it is not selected. failed is set if the
// bundle cannot be read.
func (r *restorer) states(of *bundle.Bundle, failed *error) iter.Seq[state] {
	return func(yield func(state) bool) {
		err := of.Each(func(o bundle.Object) error {
			obj, err := r.decode(o)
			if errors.Is(err, bundle.ErrSealed) && !r.options.selects(o.Key) {
				return nil
			}
			if err != nil {
				return err
			}
			if !yield(state{o, obj}) {
				return errStopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStopped) {
			*failed = err
		}
	}
}

// errStopped ends the reading of a bundle.
var errStopped = errors.New("no more is wanted")

// planThen decides about an object that was there then.
func (r *restorer) planThen(d *destination, then, now state) {
	resource := resourceOf(then.Key)
	switch {
	case !r.options.selects(then.Key) || isOfServer(then.Key):
	case then.Unreadable != "":
		r.note(&r.report.Refused, d, then.Key, "it could not be read when it was exported: "+then.Unreadable)
	case now.obj != nil && now.obj.GetDeletionTimestamp() != nil:
		r.leave(resource, "they are being deleted: restore again once they are gone")
	case then.Deleted:
		if now.obj != nil {
			r.planNew(now)
		}
	case now.obj != nil && reflect.DeepEqual(r.contentOf(then.Key, then.obj), r.contentOf(then.Key, now.obj)):
		r.out.Same++
	case leftBehind(then.obj, resource) != "":
		r.leave(resource, leftBehind(then.obj, resource))
	case resource == "workspaces.tenancy.kcp.io" && now.obj == nil:
		r.leave(resource, "they are gone with all that was in them: import a bundle of each")
	default:
		if now.obj == nil {
			r.out.Create = append(r.out.Create, then.Key)
			d.owned[then.obj.GetUID()] = true
		} else {
			r.out.Update = append(r.out.Update, then.Key)
		}
		r.only[then.Key] = true
	}
}

// planPruned decides about an object that was not there then.
func (r *restorer) planPruned(now state) {
	key, resource := now.Key, resourceOf(now.Key)
	switch {
	case !r.options.selects(key) || isOfServer(key):
	case now.Deleted:
		r.leave(resource, "every workspace has them, and they were deleted since: make them again")
	case now.obj == nil || !r.options.Prune || leftBehind(now.obj, resource) != "":
	case resource == "workspaces.tenancy.kcp.io":
		r.leave(resource, "they are new, and stay: delete them by regent ws delete")
	default:
		r.out.Delete = append(r.out.Delete, key)
		named := &unstructured.Unstructured{}
		named.SetGroupVersionKind(now.obj.GroupVersionKind())
		named.SetNamespace(now.obj.GetNamespace())
		named.SetName(now.obj.GetName())
		r.prune = append(r.prune, &entry{key, now.obj.GetUID(), named})
	}
}

// isOfServer reports whether an object is one that the server writes itself.
func isOfServer(key string) bool {
	return key == bundle.LogicalClusterKey || strings.HasPrefix(key, "core/configmaps/") && strings.HasSuffix(key, "/"+clusters.RootCAConfigMap)
}

// contentOf returns what users have written of an object, with its owners as they are now, and the status where that is
// kept.
func (r *restorer) contentOf(key string, obj *unstructured.Unstructured) map[string]any {
	out := obj.DeepCopy()
	clean(out)
	owners := out.GetOwnerReferences()
	for i := range owners {
		if uid, ok := r.uids[owners[i].UID]; ok {
			owners[i].UID = uid
		}
	}
	out.SetOwnerReferences(owners)
	if !strings.HasPrefix(key, "custom/") {
		delete(out.Object, "status")
	}
	return out.Object
}

// carryOut does what is planned.
func (r *restorer) carryOut(ctx context.Context, d *destination) (err error) {
	if d.api, err = newAPI(r.client.At(d.to)); err != nil {
		return err
	}
	for phase := range phases {
		if err := r.createAll(ctx, d, phase); err != nil {
			return err
		}
		if err := r.settle(ctx, d, phase); err != nil {
			return err
		}
	}
	for phase := len(phases) - 1; phase >= 0; phase-- {
		for _, one := range r.prune {
			if phaseOf(resourceOf(one.key)) != phase {
				continue
			}
			if err := r.deleteOne(ctx, d, one); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *restorer) deleteOne(ctx context.Context, d *destination, one *entry) error {
	client, _, err := d.api.of(one.obj)
	if err == nil {
		err = patiently(ctx, func() error {
			return client.Delete(ctx, one.obj.GetName(), metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(one.uid))})
		})
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("delete %s: %w", one.key, err)
	case err == nil:
		r.report.Deleted++
	case !apierrors.IsNotFound(err):
		r.note(&r.report.Refused, d, one.key, "it cannot be deleted: "+err.Error())
	}
	return nil
}
