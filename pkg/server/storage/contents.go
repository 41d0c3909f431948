package storage

import (
	"context"
	"fmt"
	"slices"

	"github.com/kcp-dev/logicalcluster/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/pkg/clusters"
)

// opsAtOnce is how many reads, or comparisons, one transaction has at the most. etcd takes 128 of each, unless its
// --max-txn-ops says otherwise.
const opsAtOnce = 100

// Holding implements controllers.Deps.Holding. It decodes nothing: what cannot be decoded, and the tombstone of a
// built-in object, are something that the cluster holds.
func (c *Client) Holding(ctx context.Context, resources []schema.GroupVersionResource) (all []schema.GroupVersionResource, err error) {
	cluster, ok := clusters.From(ctx)
	if !ok {
		return nil, fmt.Errorf("the context names no logical cluster")
	}
	for some := range slices.Chunk(resources, opsAtOnce) {
		reads := make([]clientv3.Op, len(some))
		for i, r := range some {
			prefix, err := c.contents(r.GroupResource(), cluster)
			if err != nil {
				return nil, err
			}
			reads[i] = clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())
		}
		answer, err := c.calls.Txn(ctx).Then(reads...).Commit()
		if err != nil {
			return nil, fmt.Errorf("look for what logical cluster %s holds: %w", cluster, err)
		}
		for i, found := range answer.Responses {
			if len(found.GetResponseRange().Kvs) > 0 {
				all = append(all, some[i])
			}
		}
	}
	return all, nil
}

// contents returns what the keys in etcd of a logical cluster's objects of a resource begin with.
func (c *Client) contents(resource schema.GroupResource, cluster logicalcluster.Name) (string, error) {
	stored, ok := c.resources.Load(resource)
	if !ok {
		return "", fmt.Errorf("%s is not stored here: ask for what Deps.Resources has, or for clusters.CustomObjects", resource)
	}
	prefix := stored.(*storedResource).prefix
	key, err := clusters.StorageKey(prefix, prefix, cluster)
	return c.config.Prefix + key + "/", err
}
