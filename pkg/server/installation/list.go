package installation

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"sync"
	"time"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// Shard is what is known of a member.
type Shard struct {
	Name     string            `json:"name"`
	Root     bool              `json:"root,omitempty"`
	Replicas []string          `json:"replicas"`
	Labels   map[string]string `json:"labels,omitempty"`
	Cordoned bool              `json:"cordoned"`
	// Clusters is how many logical clusters it has, Capacity how many it can have. Both are 0 if it cannot be
	// asked; then Fault says why.
	Clusters int64  `json:"clusters"`
	Capacity int64  `json:"capacity"`
	Fault    string `json:"fault,omitempty"`
}

// List returns all members.
func (a *Admin) List(ctx context.Context) ([]Shard, error) {
	root, err := a.root(ctx)
	if err != nil {
		return nil, err
	}
	all, err := a.members(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Shard, len(all))
	var asking sync.WaitGroup
	for n, member := range all {
		asking.Go(func() { out[n] = a.describe(ctx, member, member.Name == root.Name) })
	}
	asking.Wait()
	return out, nil
}

// homeTimeout is how long a shard may take to say how it is.
const homeTimeout = 5 * time.Second

// describe returns what is known of a member, and asks it for the rest.
func (a *Admin) describe(ctx context.Context, member *corev1alpha1.Shard, isRoot bool) Shard {
	ctx, cancel := context.WithTimeout(ctx, homeTimeout)
	defer cancel()
	s := Shard{Name: member.Name, Root: isRoot, Replicas: clusters.ReplicasOf(member), Labels: maps.Clone(member.Labels), Cordoned: clusters.IsCordoned(member)}
	home, err := a.home(ctx, member)
	if err != nil && isRoot { // its Shard object may name few of its replicas
		if through, fault := homeOf(ctx, a.clients, member); fault == nil {
			home, err = through, nil
		}
	}
	if fault := (*url.Error)(nil); errors.As(err, &fault) {
		err = fault.Err // it names the addresses, and not one URL for all replicas
	}
	if err != nil {
		s.Fault = err.Error()
		return s
	}
	capacity, use := home.Status.Capacity[clusters.CapacityClusters], home.Status.Capacity[clusters.UsedClusters]
	s.Capacity, s.Clusters = capacity.Value(), use.Value()
	return s
}

// home returns what a shard says of itself.
func (a *Admin) home(ctx context.Context, member *corev1alpha1.Shard) (*corev1alpha1.Shard, error) {
	clients, err := a.of(member)
	if err != nil {
		return nil, err
	}
	return homeOf(ctx, clients, member)
}

func homeOf(ctx context.Context, clients controllers.Clients, member *corev1alpha1.Shard) (*corev1alpha1.Shard, error) {
	return clients.Shards.Get(clusters.With(ctx, clusters.SystemShards), member.Name, metav1.GetOptions{})
}
