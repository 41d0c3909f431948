package front

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/routing"
)

// shardPrefix begins the URL paths with which administrators ask one shard: /shards/<name>/clusters/...
const shardPrefix = "/shards/"

// target returns the shard to which a request goes, and the path of its URL there. who is nil if the request has a
// token; isAccepted says that a shard has accepted that. For a token that none has accepted, nothing is read to find
// the cluster.
//
// Only members of system:masters are told here that there is no such cluster. All others are sent to the shard that has
// the nearest cluster around it: it says the same of clusters that they may not enter.
func (f *Front) target(req *http.Request, who user.Info, isAccepted bool) (*shard, string, error) {
	if after, ok := strings.CutPrefix(req.URL.Path, shardPrefix); ok {
		name, rest, _ := strings.Cut(after, "/")
		s, ok := f.shard(name)
		if !ok {
			message := fmt.Sprintf("there is no shard %q", name)
			if !f.isListed() {
				return nil, "", routing.NewUnavailable(message + " that this front knows yet")
			}
			return nil, "", routing.NewNotFound(message)
		}
		inner := *req.URL
		if inner.Path = "/" + rest; strings.HasPrefix(inner.Path, "/clusters/") {
			if _, _, err := routing.Split(&inner); err != nil {
				return nil, "", err
			}
		} else if inner.RawPath != "" && inner.RawPath != req.URL.Path {
			return nil, "", apierrors.NewBadRequest("the URL path must not have encoded characters")
		}
		return s, inner.Path, nil
	}
	if strings.HasPrefix(req.URL.Path, routing.StatusPrefix+"/") {
		return f.ofInstallation(req)
	}
	path, rest, err := routing.Split(req.URL)
	if err != nil {
		return nil, "", err
	}
	name := logicalcluster.Name(path.String())
	if name == clusters.Wildcard || clusters.IsSystem(name) {
		return nil, "", apierrors.NewBadRequest(fmt.Sprintf("every shard has clusters %s of its own: ask one shard, as /shards/<name>/clusters/%s", name, name))
	}
	isKnown := who != nil || isAccepted
	at, err := f.resolve(req.Context(), path, isKnown)
	if err != nil && (!isKnown || !isAdministrator(who) && apierrors.IsNotFound(err)) {
		if s, ok := f.nearest(path); ok {
			return s, "/clusters/" + path.String() + rest, nil
		}
	}
	if err != nil {
		return nil, "", err
	}
	s, ok := f.shard(at.shard)
	if !ok {
		return nil, "", routing.NewUnavailable(fmt.Sprintf("logical cluster %q is on shard %s, which this front does not know", path, at.shard))
	}
	return s, clusters.RequestPath(at.cluster) + rest, nil
}

// ofInstallation returns the root shard for a request about how the installation is doing. Other shards are asked by
// their name.
func (f *Front) ofInstallation(req *http.Request) (*shard, string, error) {
	if req.URL.RawPath != "" || strings.Contains(req.URL.Path, "/.") || strings.Contains(req.URL.Path, "//") {
		return nil, "", apierrors.NewBadRequest("the URL path must not have encoded characters, or empty or dot segments")
	}
	root, ok := f.shard(f.cfg.Membership.Root.Name)
	if !ok {
		return nil, "", routing.NewUnavailable("this front does not know the root shard yet")
	}
	return root, req.URL.Path, nil
}

// nearest returns the shard that has the nearest cluster around a path that leads nowhere, or the root shard if there
// is none.
func (f *Front) nearest(path logicalcluster.Path) (*shard, bool) {
	if at, ok := f.around(path); ok {
		return f.shard(at.shard)
	}
	return f.shard(f.cfg.Membership.Root.Name)
}

func (f *Front) isListed() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.hasList
}

// liveTimeout is how long a read that finds a cluster may take.
const liveTimeout = 5 * time.Second

// resolve returns where the cluster at a path is. If the index does not have it, the Workspace is read from the shard
// that has its parent: it may have been created just now. So a 404 is never a guess.
func (f *Front) resolve(ctx context.Context, path logicalcluster.Path, mayRead bool) (place, error) {
	at, found := f.index.find(path)
	parent, name := path.Split()
	switch {
	case found && (!mayRead || parent.Empty() || f.index.isConfirmed(at.cluster)):
		return at, nil
	case found:
		return f.check(ctx, path, at)
	case parent.Empty() && mayRead && clusters.IsValidName(logicalcluster.Name(name)) && !clusters.IsPermanent(logicalcluster.Name(name)) && f.isListed():
		return f.search(ctx, logicalcluster.Name(name))
	case parent.Empty() || !mayRead:
		if unheard, _ := f.unheard(); len(unheard) > 0 || !f.isListed() {
			return place{}, routing.NewUnavailable(fmt.Sprintf("logical cluster %q may be on a shard that is not heard: %s", path, strings.Join(unheard, ", ")))
		}
		return place{}, routing.NewNotFound(fmt.Sprintf("logical cluster %q not found", path))
	}
	above, err := f.above(ctx, path)
	if err != nil {
		return place{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.liveTimeout)
	defer cancel()
	ws, err := above.workspace(ctx, name)
	switch {
	case apierrors.IsNotFound(err), err == nil && ws.Spec.Cluster == "":
		return place{}, routing.NewNotFound(fmt.Sprintf("logical cluster %q not found", path))
	case err != nil:
		return place{}, &noAnswer{routing.NewUnavailable(fmt.Sprintf("shard %s does not answer, which knows where logical cluster %q is", above.name, path)), err}
	}
	return f.confirm(ctx, path, ws, clusters.ShardOf(ws, clusters.ShardLabel, above.name))
}

// parent is the cluster in which a path goes on by the name of a Workspace, and its shard.
type parent struct {
	*shard
	cluster logicalcluster.Name
}

// above returns the parent of the cluster at a path.
func (f *Front) above(ctx context.Context, path logicalcluster.Path) (parent, error) {
	of, _ := path.Parent()
	at, err := f.resolve(ctx, of, true)
	if err != nil {
		return parent{}, err
	}
	s, ok := f.shard(at.shard)
	if !ok {
		return parent{}, routing.NewUnavailable(fmt.Sprintf("shard %s, which has logical cluster %q, is not known", at.shard, of))
	}
	return parent{s, at.cluster}, nil
}

func (p parent) workspace(ctx context.Context, name string) (*tenancyv1alpha1.Workspace, error) {
	return p.clients.Workspaces.Get(clusters.With(ctx, p.cluster), name, metav1.GetOptions{})
}

// checkTimeout is how long check may wait for the parent's shard.
const checkTimeout = 500 * time.Millisecond

// check returns where the cluster at a path is, if the index has one that says that it is there. At its first use the
// parent's shard is asked, for a shard could claim the paths of others: a Workspace that is there decides. If there is
// none, the cluster may be an orphan, which serves on. If the parent's shard is not heard, nothing else serves (I11).
func (f *Front) check(all context.Context, path logicalcluster.Path, at place) (place, error) {
	ctx, cancel := context.WithTimeout(all, checkTimeout)
	defer cancel()
	above, err := f.above(ctx, path)
	if err != nil || !above.isKnown() {
		return at, nil
	}
	ws, err := above.workspace(ctx, path.Base())
	if err != nil || ws.Spec.Cluster == "" {
		return at, nil
	}
	shard := clusters.ShardOf(ws, clusters.ShardLabel, above.name)
	if ws.Spec.Cluster == at.cluster.String() && shard == at.shard {
		f.index.confirm(at, path)
		return at, nil
	}
	if ws.Spec.Cluster == at.cluster.String() && f.hasMoved(ctx, shard, at) {
		return at, nil // the Workspace does not say so yet
	}
	// The shard that the Workspace names is not the parent's, and may need longer: the cluster may just arrive
	// there.
	ctx, stop := context.WithTimeout(all, f.liveTimeout)
	defer stop()
	return f.confirm(ctx, path, ws, shard)
}

// hasMoved reports whether a shard says that a cluster has moved from it to where the index has it. The new shard is
// not asked: it answers once the cluster has arrived.
func (f *Front) hasMoved(ctx context.Context, from string, at place) bool {
	s, ok := f.shard(from)
	if !ok {
		return false
	}
	_, err := s.logicalCluster(ctx, at.cluster)
	return movedTo(err) == at.shard
}

// maxSearches is how many searches may be under way. One client that asks for names that do not exist must not take the
// places for reads of all shards, which are 400 by default.
const maxSearches = 64

// search asks all shards for a cluster of which the index knows no name: its shard may have made it just now.
func (f *Front) search(ctx context.Context, cluster logicalcluster.Name) (place, error) {
	ctx, cancel := context.WithTimeout(ctx, f.liveTimeout)
	defer cancel()
	select {
	case f.searches <- struct{}{}:
		defer func() { <-f.searches }()
	case <-ctx.Done():
		return place{}, routing.NewUnavailable(fmt.Sprintf("logical cluster %q is looked for, and many others too: try again", cluster))
	}
	f.mu.RLock()
	all := slices.Collect(maps.Values(f.shards))
	f.mu.RUnlock()
	errs := make([]error, len(all))
	var asking sync.WaitGroup
	for n, s := range all {
		asking.Go(func() {
			_, errs[n] = s.logicalCluster(ctx, cluster)
		})
	}
	asking.Wait()
	var have, silent []string
	for n, s := range all {
		switch {
		case errs[n] == nil:
			have = append(have, s.name)
		case !apierrors.IsNotFound(errs[n]) && movedTo(errs[n]) == "":
			silent = append(silent, s.name)
		}
	}
	slices.Sort(silent)
	switch {
	case len(have) == 1:
		return place{have[0], cluster}, nil
	case len(have) > 1: // names are not used twice: one of them lies, or was restored
		return place{}, routing.NewUnavailable(fmt.Sprintf("several shards say that they have logical cluster %q: %q. Ask one, as /shards/<name>/clusters/%s", cluster, have, cluster))
	case len(silent) > 0:
		return place{}, routing.NewUnavailable(fmt.Sprintf("logical cluster %q may be on a shard that is not heard: %s", cluster, strings.Join(silent, ", ")))
	}
	return place{}, routing.NewNotFound(fmt.Sprintf("logical cluster %q not found", cluster))
}

// confirm returns where the cluster of a Workspace is, if the cluster itself names the Workspace as its owner. A
// Workspace alone proves nothing: a shard could send users of its workspaces to clusters of others.
func (f *Front) confirm(ctx context.Context, path logicalcluster.Path, ws *tenancyv1alpha1.Workspace, shard string) (place, error) {
	cluster := logicalcluster.Name(ws.Spec.Cluster)
	absent := routing.NewNotFound(fmt.Sprintf("logical cluster %q not found", path))
	if !clusters.IsValidName(cluster) || clusters.IsPermanent(cluster) {
		return place{}, absent
	}
	s, ok := f.shard(shard)
	if !ok {
		return place{}, routing.NewUnavailable(fmt.Sprintf("logical cluster %q is on shard %s, which this front does not know", path, shard))
	}
	lc, err := s.logicalCluster(ctx, cluster)
	if to := movedTo(err); to != "" { // the Workspace does not say so yet
		if s, ok = f.shard(to); !ok {
			return place{}, routing.NewUnavailable(fmt.Sprintf("logical cluster %q is on shard %s, which this front does not know", path, to))
		}
		shard = to
		lc, err = s.logicalCluster(ctx, cluster)
	}
	switch {
	case apierrors.IsNotFound(err), err == nil && !controllers.Owns(ws, lc):
		return place{}, absent
	case err != nil:
		return place{}, &noAnswer{routing.NewUnavailable(fmt.Sprintf("shard %s does not answer, which has logical cluster %q", shard, path)), err}
	}
	return place{shard, cluster}, nil
}

// around returns where the nearest cluster is in which a path goes on.
func (f *Front) around(path logicalcluster.Path) (place, bool) {
	for parent, more := path.Parent(); more && !parent.Empty(); parent, more = parent.Parent() {
		if at, ok := f.index.find(parent); ok {
			return at, true
		}
	}
	return place{}, false
}
