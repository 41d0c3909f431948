package bundles

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"

	"github.com/regent-project/regent/cmd/server/workspaces"
	"github.com/regent-project/regent/pkg/server/bundle"
)

// RestoreExactly puts the objects of a workspace back as they were: with their uids, status and managed fields, and
// what is new is deleted. Nobody else writes in the workspace meanwhile. export returns it as it is at a revision; 0:
// now.
//
// If it fails, some objects may have been put back. It may be called again, and does the rest.
func RestoreExactly(
	ctx context.Context, client *workspaces.Client, then *bundle.Bundle, export func(ctx context.Context, revision int64) (*bundle.Bundle, error),
	to logicalcluster.Path, o RestoreOptions,
) (*Restored, error) {
	x := &exact{restorer: restorer{importer: importer{options: o.ImportOptions}, options: o}, left: "they stay as they are", put: map[string]*rewrite{}, same: map[string]*rewrite{}}
	d := &destination{Bundle: then, from: logicalcluster.NewPath(then.Path), to: to}
	x.planOne = func(then, now state) { x.planThen(d, then, now) }
	x.planNew = x.planGone
	err := x.run(ctx, client, d, export)
	x.out.Report = x.report
	return &x.out, err
}

// exact puts one workspace back as it was.
type exact struct {
	restorer
	// left begins the sentence that says why objects are left alone.
	left string
	// put are the objects that are written, by key. same are those that are as they were, and have owners.
	put  map[string]*rewrite
	same map[string]*rewrite
}

// rewrite is what is known of an object that is written.
type rewrite struct {
	uid    types.UID
	owners []types.UID
	// after is how many others are written first, one after the other: its owners, and theirs.
	after int
}

func (x *exact) run(ctx context.Context, client *workspaces.Client, d *destination, export func(context.Context, int64) (*bundle.Bundle, error)) error {
	if x.options.Plan {
		return x.compare(ctx, d, 0, export)
	}
	of, err := discovery.NewDiscoveryClientForConfig(client.At(d.to))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	return whileFrozen(ctx, &frozen{client: of.RESTClient(), path: bundle.FreezePath}, func(ctx context.Context, f *frozen) error {
		if err := x.compare(ctx, d, f.Revision, export); err != nil {
			return err
		}
		return x.write(ctx, d, f)
	})
}

// compare plans what is to be done with a workspace as it is at a revision. It must be the one that the bundle is of:
// no two logical clusters of a shard have an object with the same uid.
func (x *exact) compare(ctx context.Context, d *destination, revision int64, export func(context.Context, int64) (*bundle.Bundle, error)) error {
	now, err := export(ctx, revision)
	if err != nil {
		return err
	}
	if now.Cluster != d.Cluster {
		return fmt.Errorf("the bundle is of logical cluster %s, and %s is another one, %s: put it back without --exact, or make a new workspace of it (regent cluster import)", d.Cluster, d.to, now.Cluster)
	}
	return x.plan(d, now)
}

// planThen decides about an object that was there then.
func (x *exact) planThen(d *destination, then, now state) {
	why := bundle.LeftAlone(then.Key)
	switch {
	case !x.options.selects(then.Key) || isOfServer(then.Key):
	case then.Unreadable != "":
		x.note(&x.report.Refused, d, then.Key, "it could not be read when it was exported: "+then.Unreadable)
	case why != "":
		if now.obj == nil || !reflect.DeepEqual(then.obj, now.obj) {
			x.leave(resourceOf(then.Key), x.left+": "+why)
		}
	case then.Deleted && now.Deleted:
	case then.Deleted:
		x.leave(resourceOf(then.Key), "every workspace has them, and this one had none then: delete them")
	case now.obj != nil && reflect.DeepEqual(then.obj, now.obj):
		x.out.Same++
		if w := rewriteOf(then); len(w.owners) > 0 {
			x.same[then.Key] = w
		}
	default:
		if now.obj == nil {
			x.out.Create = append(x.out.Create, then.Key)
		} else {
			x.out.Update = append(x.out.Update, then.Key)
		}
		x.put[then.Key] = rewriteOf(then)
	}
}

// planGone decides about an object that was not there then.
func (x *exact) planGone(now state) {
	switch {
	case !x.options.selects(now.Key) || isOfServer(now.Key) || bundle.LeftAlone(now.Key) != "":
	case now.Unreadable != "":
		x.leave(resourceOf(now.Key), "they cannot be read, and stay: an administrator finds them in etcd (docs/OPERATIONS.md)")
	default: // what every workspace has, and was deleted since, is there again without its mark
		x.out.Delete = append(x.out.Delete, now.Key)
	}
}

func rewriteOf(s state) *rewrite {
	w := &rewrite{uid: s.obj.GetUID()}
	for _, owner := range s.obj.GetOwnerReferences() {
		w.owners = append(w.owners, owner.UID)
	}
	return w
}

// order says what is written after what: an object after its owners, so that nobody sees one whose owner is gone. What
// is as it was, and has an owner that comes back, is written again: a garbage collector that has seen that the owner
// was gone deletes no newer version.
func (x *exact) order() (last int) {
	back := map[types.UID]*rewrite{}
	for _, w := range x.put {
		back[w.uid] = w
	}
	for key, w := range x.same {
		if slices.ContainsFunc(w.owners, func(uid types.UID) bool { return back[uid] != nil }) {
			x.put[key] = w
		}
	}
	// Each round finds one more generation of owners. Owners may own each other, so the rounds are bounded.
	for changed, rounds := true, 0; changed && rounds <= maxGenerations; rounds++ {
		changed = false
		for _, w := range x.put {
			for _, uid := range w.owners {
				if owner := back[uid]; owner != nil && owner != w && w.after <= owner.after && owner.after < maxGenerations {
					w.after, changed = owner.after+1, true
				}
			}
			last = max(last, w.after)
		}
	}
	return last
}

// maxGenerations bounds how many generations of owners are told apart.
const maxGenerations = 16

// write writes what is planned.
func (x *exact) write(ctx context.Context, d *destination, f *frozen) error {
	last := x.order()
	created, updated := len(x.out.Create), len(x.out.Update)
	for after := 0; after <= last; after++ {
		err := d.Each(func(o bundle.Object) error {
			if w := x.put[o.Key]; w == nil || w.after != after {
				return nil
			}
			open, err := bundle.Unseal(o, x.options.Identities)
			if err != nil {
				return err
			}
			return f.add(ctx, bundle.Object{Key: o.Key, Object: open.Object, Deleted: o.Deleted})
		})
		if err == nil {
			err = f.flush(ctx)
		}
		if err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(slices.Values(x.out.Delete)) {
		if err := f.add(ctx, bundle.Object{Key: key, Deleted: true}); err != nil {
			return err
		}
	}
	if err := f.flush(ctx); err != nil {
		return err
	}
	x.report.Created, x.report.Updated, x.report.Deleted = created, updated, len(x.out.Delete)
	return nil
}
