package server

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"

	"github.com/kcp-dev/logicalcluster/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/server/shards"
)

// confirmedPlaces is how many homes are remembered in etcd, of some 150 bytes.
const confirmedPlaces = 16384

// confirmed remembers in etcd which other shard has a logical cluster. Each cluster has a place, which it may have to
// leave to another one, so nothing has to be cleaned up.
type confirmed struct {
	client *clientv3.Client
	prefix string
}

// confirmedHome is what a place has.
type confirmedHome struct {
	Cluster logicalcluster.Name `json:"cluster"`
	Shard   string              `json:"shard"`
}

// key does not collide with the keys of objects, which are <prefix>/<group>/<resource>/...
func (c *confirmed) key(cluster logicalcluster.Name) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(cluster))
	return fmt.Sprintf("%s/.confirmed/%d", c.prefix, sum.Sum32()%confirmedPlaces)
}

// Home implements shards.Memory.
func (c *confirmed) Home(ctx context.Context, cluster logicalcluster.Name) string {
	resp, err := c.client.Get(ctx, c.key(cluster))
	if err != nil || len(resp.Kvs) == 0 {
		return ""
	}
	var home confirmedHome
	if err := json.Unmarshal(resp.Kvs[0].Value, &home); err != nil || home.Cluster != cluster {
		return ""
	}
	return home.Shard
}

// Remember implements shards.Memory.
func (c *confirmed) Remember(ctx context.Context, cluster logicalcluster.Name, shard string) {
	value, err := json.Marshal(confirmedHome{cluster, shard})
	if err == nil {
		_, err = c.client.Put(ctx, c.key(cluster), string(value))
	}
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Which shard has a cluster is not remembered beyond this process", "cluster", cluster, "shard", shard, "err", err)
	}
}

var _ shards.Memory = (*confirmed)(nil)
