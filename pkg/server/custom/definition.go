package custom

import (
	"context"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/pkg/server/premise"
)

// Definition is what a logical cluster says of one custom resource that it serves.
type Definition struct {
	*Content
	// Terminating says that the definition is being deleted: nothing new can be made.
	Terminating bool
	// of are the contents that the definition stands for, if it shows the objects of clusters that do not agree.
	of []*Content
	// when is what must hold when an object is created: that the cluster still says this. Read again, it may say
	// the same. again is nil if nothing can be created.
	when  premise.Condition
	again func(context.Context) (*Definition, error)
	// One of changed ends when the cluster says something else, or nothing any more. Watches end then, since what
	// they show is no longer so.
	changed []context.Context //nolint:containedctx // they are what ends, not what a call is made in
}

// whenChanged calls end once the cluster says something else, unless stop was called before.
func (d *Definition) whenChanged(end func()) (stop func()) {
	stops := make([]func() bool, len(d.changed))
	for n, changed := range d.changed {
		stops[n] = context.AfterFunc(changed, end)
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// Everywhere is what all logical clusters together say of one custom resource.
type Everywhere struct {
	// Contents has each of the contents once, the one that most clusters have first. If there are several, the
	// clusters do not agree.
	Contents []*Content
	// One of changed ends when the contents are others.
	changed []context.Context //nolint:containedctx // as those of Definition
}

// Source says which custom resources logical clusters serve.
//
// Its methods may be called at any time on any goroutine. They return only what is established.
type Source interface {
	// Definition returns the definition of a resource, and nil if the cluster has none. It asks storage before it
	// says so, because a cluster may have got one through another replica just now.
	Definition(ctx context.Context, cluster logicalcluster.Name, resource schema.GroupResource) (*Definition, error)
	// Definitions returns all definitions of a cluster, ordered by group and by resource.
	Definitions(cluster logicalcluster.Name) []*Definition
	// Everywhere returns what all clusters say of a resource.
	Everywhere(resource schema.GroupResource) Everywhere
}
