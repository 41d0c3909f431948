package controllers

import (
	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apimachinery/pkg/types"

	"github.com/regent-project/regent/pkg/clusters"
)

// ByOwner is the index of Informers.Metadata by the owners that objects refer to. Its values are OwnerValue of each
// owner.
const ByOwner = "owner"

// OwnerValue returns the value of an owner in the index ByOwner. It includes the cluster, because a uid can be forged,
// or restored from a backup into a second cluster.
func OwnerValue(cluster logicalcluster.Name, uid types.UID) string {
	return cluster.String() + "|" + string(uid)
}

// OwnerIndexers are the indexers of an informer that Informers.Metadata shows.
func OwnerIndexers[T clusters.Object]() map[string]func(T) []string {
	return map[string]func(T) []string{
		ByOwner: func(obj T) (values []string) {
			for _, ref := range obj.GetOwnerReferences() {
				values = append(values, OwnerValue(clusters.KeyOf(obj).Cluster, ref.UID))
			}
			return values
		},
	}
}
