package controllers

import (
	"context"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/election/fence"
)

// Deps is what a constructor gets. Clients belong to the term, and fail when it has ended. Informers and Resources
// belong to the process, and are warm on standbys too.
type Deps struct {
	// Shard is the shard's name, Replica the name of this process.
	Shard, Replica string
	// BaseURL is the URL under which clients reach the shard, without a trailing slash and without /clusters.
	BaseURL string
	// ReplicaURL is the URL under which other shards and fronts reach this replica.
	ReplicaURL string
	// Capacity is how many logical clusters the shard can have.
	Capacity int64
	// RootCA has the certificates of the authorities by which clients know the API, in PEM. Empty: namespaces get
	// neither that nor a service account.
	RootCA string
	// Token names the term. It is zero without leader election and for EveryReplica controllers. Clients send it
	// already: a controller needs it only for effects outside of the shard.
	Token     fence.Token
	Clients   Clients
	Informers Informers
	// Range says for which logical clusters the term is: those of a range, if the shard has several. Loops heed it,
	// and what a controller keeps or reads of all clusters must, too.
	Range clusters.Range
	// Shards are the other shards of the installation. Nil: the shard is alone.
	Shards *Shards
	// Resources are the resources that this server stores, of all groups.
	Resources []Resource
	// Holding returns those of some resources, or of clusters.CustomObjects, of which something is stored for the
	// context's logical cluster, by one live read. To list them with Clients tells nearly the same, and takes the
	// server much longer. Nil: the server cannot tell, so there may be objects of each.
	Holding func(context.Context, []schema.GroupVersionResource) ([]schema.GroupVersionResource, error)
	// Moves ends what is left of logical clusters that come and go. Nil: none does.
	Moves Moves
	// LogicalCluster reads that of the context's logical cluster, live. Clients read the same, and take the server
	// longer. Nil: use Clients.
	LogicalCluster func(context.Context) (*corev1alpha1.LogicalCluster, error)
}

// Moves ends what is left of logical clusters that come and go: see clusters.Move. An error is a Conflict of
// k8s.io/apimachinery/pkg/api/errors if whoever has begun goes on, or if it cannot be said yet how it ends.
type Moves interface {
	// End makes a logical cluster that comes one that is there, or removes it with all that it has.
	End(context.Context, *corev1alpha1.LogicalCluster) error
	// Remain says of a logical cluster that may leave that it does not.
	Remain(context.Context, *corev1alpha1.LogicalCluster) error
	// Vacate removes all that a logical cluster has here that has moved. The other shard must say that it is there.
	Vacate(context.Context, *corev1alpha1.LogicalCluster) error
}

// Others returns the other shards of the installation, and Shards without any if the shard is alone.
func (d Deps) Others() *Shards {
	if d.Shards != nil {
		return d.Shards
	}
	return NewShards(d.Shard, nil)
}

// Resource is a resource that the server stores.
type Resource struct {
	GVR        schema.GroupVersionResource
	Kind       string
	Namespaced bool
}
