package storage

import (
	"context"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"
)

// together tells when objects of one resource were changed together, in one revision of etcd. A replica never does
// that: each write is of one object.
//
// Whoever watches goes on from a revision, after its watch has ended. It has then seen everything up to that revision,
// or so upstream takes it: the rest of a revision of which it has seen a part is never shown to it. So informers of
// replicas, and clients, go without these objects until they list again.
type together struct{ once sync.Once }

// tell logs it for the first of a resource's changes to which it has happened. A response of etcd has all changes of a
// revision.
func (t *together) tell(ctx context.Context, events []*clientv3.Event) {
	for n, e := range events {
		if n == 0 || e.Kv.ModRevision != events[n-1].Kv.ModRevision {
			continue
		}
		t.once.Do(func() {
			klog.FromContext(ctx).Error(nil, "Objects were changed together, in one transaction of etcd, and not by a replica. Watches may have missed some of them for good: "+
				"restart the replicas, and write objects one by one", "key", string(e.Kv.Key), "revision", e.Kv.ModRevision)
		})
		return
	}
}
