package front

import (
	"context"
	"hash/maphash"
	"net/http"
	"sync"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/build"
	"github.com/regent-project/regent/pkg/server/shards"
)

// shard is a shard, as the front sees it.
type shard struct {
	name string
	// fingerprint is that of the shard's authority. urls are its replicas'; Front.mu guards them.
	fingerprint string
	urls        []string

	replicas *replicas
	clients  controllers.Clients
	clusters metadata.Getter
	members  *clusters.Informer[*corev1alpha1.Shard]
	open     shards.OpenWatches

	mu       sync.Mutex
	isFilled bool // the index has had all clusters
	// last is when the shard was last heard, unless it is now.
	last time.Time
}

// host is the host of what is asked that no log names. replicas sends all requests to a replica that answers.
const host = "shard.regent.internal"

func newShard(cfg Config, name, fingerprint string, urls []string) (*shard, error) {
	s := &shard{name: name, fingerprint: fingerprint, urls: urls}
	var err error
	if s.replicas, err = newReplicas(cfg, name, fingerprint, urls); err != nil {
		return nil, err
	}
	asking := roundTrip(func(req *http.Request) (*http.Response, error) { return s.replicas.send(req, ownReads) })
	asFront := transport.NewUserAgentRoundTripper(clusters.FrontAgent+build.Info().GitVersion, shards.WithBounds(name, asking))
	reading := &http.Client{Transport: clusters.Transport(s.open.Over(asFront))}
	if s.clients, err = controllers.NewClients(&rest.Config{Host: "https://" + name, QPS: -1}, reading); err != nil {
		return nil, err
	}
	s.clusters = s.clients.Metadata.Resource(corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"))
	s.members = clusters.NewForeignInformer[*corev1alpha1.Shard](shards.InOneHistory(clusters.ListWatch(s.clients.Shards)))
	return s, nil
}

// clientSeed makes clients of different fronts begin with different replicas. ownReads stands for the front itself.
var clientSeed = maphash.MakeSeed()

var ownReads = maphash.String(clientSeed, "front")

// run keeps the index up to date with the shard's clusters until ctx ends.
func (s *shard) run(ctx context.Context, x *index) {
	defer s.replicas.close()
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		lw := shards.InOneHistory(clusters.ListWatch[*metav1.PartialObjectMetadataList](metadata.ResourceInterface(s.clusters)))
		clusters.Mirror[*metav1.PartialObjectMetadata](ctx, lw, &intake{shard: s, index: x})
	})
	running.Go(func() { _ = s.members.Run(ctx) })
	running.Go(func() { s.replicas.watch(ctx) })
	s.tellContact(ctx)
}

// intake puts a shard's clusters into the index.
type intake struct {
	shard *shard
	index *index
}

// Set implements clusters.Store.
func (in *intake) Set(obj *metav1.PartialObjectMetadata) {
	switch name, to := clusters.KeyOf(obj).Cluster, clusters.MovedTo(obj).Shard; {
	case to != "":
		in.index.moved(name, in.shard.name, to)
	case !isComing(obj):
		in.index.set(name, in.entry(obj))
	}
}

// isComing reports whether a cluster is not there yet: another shard may have it.
func isComing(obj *metav1.PartialObjectMetadata) bool {
	return obj.Annotations[clusters.ComingAnnotation] != ""
}

// Unset implements clusters.Store.
func (in *intake) Unset(obj *metav1.PartialObjectMetadata) {
	in.index.unset(clusters.KeyOf(obj).Cluster, in.shard.name)
}

// Replace implements clusters.Store.
func (in *intake) Replace(all []*metav1.PartialObjectMetadata) {
	entries := make(map[logicalcluster.Name]entry, len(all))
	for _, obj := range all {
		switch name, to := clusters.KeyOf(obj).Cluster, clusters.MovedTo(obj).Shard; {
		case to != "":
			// unless another shard has it, which is then that one, or a later one
			in.index.set(name, in.entry(obj))
			in.index.moved(name, in.shard.name, to)
		case !isComing(obj):
			entries[name] = in.entry(obj)
		}
	}
	in.index.replace(in.shard.name, entries)
	in.shard.mu.Lock()
	defer in.shard.mu.Unlock()
	in.shard.isFilled = true
}

func (in *intake) entry(obj *metav1.PartialObjectMetadata) entry {
	return entry{shard: in.shard.name, path: obj.Annotations[core.LogicalClusterPathAnnotationKey], deleting: obj.DeletionTimestamp != nil}
}

// watches is how many watches run needs.
const watches = 2

// tellContact logs when the shard begins to be heard, and when it has not been for a while, until ctx ends.
func (s *shard) tellContact(ctx context.Context) {
	log, behind := klog.FromContext(ctx), func() <-chan struct{} { return nil }
	s.open.Tell(ctx, watches, behind, shards.Listener{
		Hears: func() { log.Info("A shard is heard") },
		Misses: func() {
			log.Error(nil, "A shard is not heard: requests go to its clusters as the front last knew them, and names the front does not know are answered with 503")
		},
		Wavers: func(wavers bool) {
			if wavers {
				s.wasHeard()
			}
		},
	})
}

// isKnown reports whether the index has all clusters of the shard.
func (s *shard) isKnown() bool {
	open, _ := s.open.Count()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isFilled && open >= watches
}

// lastHeard returns when the shard was last heard. It is zero if that has not been yet, and is of no meaning while the
// shard is heard.
func (s *shard) lastHeard() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *shard) wasHeard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Now()
}
