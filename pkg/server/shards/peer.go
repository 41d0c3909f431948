package shards

import (
	"context"
	"net/http"
	"sync"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// peer reads one other shard.
type peer struct {
	member    Member
	transport *failover
	open      OpenWatches
	clients   controllers.Clients

	workspaces      *clusters.Informer[*tenancyv1alpha1.Workspace]
	logicalClusters *clusters.Informer[*corev1alpha1.LogicalCluster]
	shards          *clusters.Informer[*corev1alpha1.Shard]
}

func newPeer(own string, caller *Caller, m Member) (*peer, error) {
	transport, err := newFailover(caller, m)
	if err != nil {
		return nil, err
	}
	p := &peer{member: m, transport: transport}
	client := &http.Client{Transport: clusters.Transport(p.open.Over(transport))}
	p.clients, err = controllers.NewClients(&rest.Config{Host: m.URLs[0], QPS: -1, UserAgent: rest.DefaultKubernetesUserAgent()}, client)
	if err != nil {
		return nil, err
	}
	p.workspaces = clusters.NewForeignInformer[*tenancyv1alpha1.Workspace](InOneHistory(withLabel(clusters.ListWatch(p.clients.Workspaces), clusters.ShardLabel+"="+own)))
	p.logicalClusters = clusters.NewForeignInformer[*corev1alpha1.LogicalCluster](InOneHistory(withLabel(clusters.ListWatch(p.clients.LogicalClusters), clusters.OwnerShardLabel+"="+own)))
	p.shards = clusters.NewForeignInformer[*corev1alpha1.Shard](InOneHistory(clusters.ListWatch(p.clients.Shards)))
	return p, nil
}

// labelled lists and watches the objects with a label only.
func withLabel(lw cache.ListerWatcherWithContext, selector string) cache.ListerWatcherWithContext {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			opts.LabelSelector = selector
			return lw.ListWithContext(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.LabelSelector = selector
			return lw.WatchWithContext(ctx, opts)
		},
	}
}

// run reads until ctx ends.
func (p *peer) run(ctx context.Context, into *controllers.Shards) {
	defer p.transport.close()
	defer into.Workspaces.Add(p.member.Name, p.workspaces)()
	defer into.LogicalClusters.Add(p.member.Name, p.logicalClusters)()
	defer into.Members.Add(p.member.Name, p.shards)()
	var informers sync.WaitGroup
	defer informers.Wait()
	informers.Go(func() { _ = p.workspaces.Run(ctx) })
	informers.Go(func() { _ = p.logicalClusters.Run(ctx) })
	informers.Go(func() { _ = p.shards.Run(ctx) })
	p.tellContact(ctx, into.Contact)
}

// tellContact says whether the shard is heard, until ctx ends: its caches are filled, and all of their watches are
// open.
func (p *peer) tellContact(ctx context.Context, contact *controllers.Contact) {
	name, log := p.member.Name, klog.FromContext(ctx)
	defer contact.Set(name, false)
	metric := shardHeard.WithLabelValues(name)
	metric.Set(0)
	defer shardHeard.DeleteLabelValues(name)
	p.open.Tell(ctx, watches, p.behind, Listener{
		Hears: func() {
			contact.Set(name, true)
			metric.Set(1)
			log.Info("Another shard is heard", "replicas", p.member.URLs)
		},
		Misses: func() {
			metric.Set(0)
			contact.Set(name, false)
			log.Error(p.transport.lastFault(), "Another shard is not heard: it gets no new logical clusters, and what waits for it goes on when it is heard", "replicas", p.member.URLs)
		},
		Wavers: func(wavers bool) {
			if wavers {
				contact.Waver(name)
			} else {
				contact.Set(name, true)
			}
		},
	})
}

// watches is how many watches run needs.
const watches = 3

// synced returns a channel that is closed when one more cache is filled, and nil if all are.
func (p *peer) behind() <-chan struct{} {
	for _, one := range []<-chan struct{}{p.workspaces.Synced(), p.logicalClusters.Synced(), p.shards.Synced()} {
		select {
		case <-one:
		default:
			return one
		}
	}
	return nil
}
