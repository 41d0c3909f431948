package bundles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/client-go/discovery"

	"github.com/regent-project/regent/cmd/server/workspaces"
	"github.com/regent-project/regent/pkg/server/bundle"
)

// ImportExactly takes workspaces in as they were, where they were: with the names of their logical clusters, and with
// the uids, status and managed fields of all objects. It does so one by one, parents first: each is there as a whole or
// not at all, and nobody sees it before. The error is of the first that is not there.
func ImportExactly(ctx context.Context, client *workspaces.Client, all []*bundle.Bundle, o ImportOptions) (*Report, error) {
	x := &exact{restorer: restorer{importer: importer{options: o, byName: map[string]*destination{}}}, left: "they do not come back"}
	if err := x.prepare(all, logicalcluster.NewPath(all[0].Path)); err != nil {
		return &x.report, err
	}
	for _, d := range x.places {
		if err := x.takeIn(ctx, client, d); err != nil {
			return &x.report, fmt.Errorf("take in %s: %w", d.to, err)
		}
	}
	return &x.report, nil
}

// takeIn takes one workspace in.
func (x *exact) takeIn(ctx context.Context, client *workspaces.Client, d *destination) error {
	parent, ok := d.to.Parent()
	if !ok {
		return fmt.Errorf("%q is no workspace of another one, and is never taken in: put it back in place (regent cluster restore --exact)", d.to)
	}
	coming, err := x.comingOf(d, parent)
	if err != nil {
		return err
	}
	of, err := discovery.NewDiscoveryClientForConfig(client.At(parent))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	if err := x.planAll(d); err != nil {
		return err
	}
	f := &frozen{client: of.RESTClient(), path: bundle.ComingPath, cluster: d.Cluster, coming: coming}
	before := x.report.Created
	err = whileFrozen(ctx, f, func(ctx context.Context, f *frozen) error { return x.write(ctx, d, f) })
	x.report.Created = before
	if err == nil {
		x.report.Created += len(x.out.Create)
	}
	return err
}

// comingOf returns what a workspace is taken in by. Its Workspace is in the bundle of its parent, if the file has that.
func (x *exact) comingOf(d *destination, parent logicalcluster.Path) ([]byte, error) {
	lc, err := x.find(d, bundle.LogicalClusterKey)
	if err != nil {
		return nil, err
	}
	if lc == nil {
		return nil, errors.New("the bundle has no LogicalCluster: take one that was exported later")
	}
	coming := bundle.Coming{LogicalCluster: lc}
	if in := x.byName[parent.String()]; in != nil {
		if coming.Workspace, err = x.find(in, bundle.WorkspaceKeys+d.to.Base()); err != nil {
			return nil, err
		}
	}
	return json.Marshal(coming)
}

// find returns an object of a bundle as JSON, and nil if it has none.
func (x *exact) find(d *destination, key string) (json.RawMessage, error) {
	o, ok, err := d.Find(key)
	if err != nil || !ok {
		return nil, err
	}
	open, err := bundle.Unseal(o, x.options.Identities)
	return open.Object, err
}

// planAll plans that all is written that a bundle has.
func (x *exact) planAll(d *destination) error {
	x.put, x.same, x.out.Create = map[string]*rewrite{}, map[string]*rewrite{}, nil
	var failed error
	for s := range x.states(d.Bundle, &failed) {
		name, isWorkspace := strings.CutPrefix(s.Key, bundle.WorkspaceKeys)
		switch {
		case s.Deleted:
			x.put[s.Key] = &rewrite{}
		case !isWorkspace:
			x.planThen(d, s, state{})
		case x.byName[d.from.Join(name).String()] == nil:
			x.leave(resourceOf(s.Key), "the file has no bundle of what is in them: export with --recursive")
		}
	}
	return failed
}
