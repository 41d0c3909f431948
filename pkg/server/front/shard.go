package front

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/shards"
)

// shard is a shard, as the front sees it.
type shard struct {
	name string
	// fingerprint is that of the shard's authority. urls are its replicas'; Front.mu guards them.
	fingerprint string
	urls        []string

	transport *http.Transport
	clients   controllers.Clients

	clusters *clusters.Informer[*metav1.PartialObjectMetadata]
	members  *clusters.Informer[*corev1alpha1.Shard]
	open     shards.OpenWatches

	mu       sync.Mutex
	replicas []string // of host:port, in the order in which they are tried
}

// host is the host of all URLs of shards. The transport dials whichever replica accepts.
const host = "shard.regent.internal"

func newShard(cfg Config, name, fingerprint string, urls []string) (*shard, error) {
	s := &shard{name: name, fingerprint: fingerprint, urls: urls}
	if err := s.move(urls); err != nil {
		return nil, err
	}
	var err error
	if s.transport, err = shards.NewTransport([]byte(cfg.Membership.CertificateAuthority), cfg.authority, name, fingerprint); err != nil {
		return nil, err
	}
	s.transport.DialContext = s.dial
	reading := &http.Client{Transport: clusters.Transport(roundTrip(func(req *http.Request) (*http.Response, error) {
		resp, err := s.transport.RoundTrip(req)
		if err == nil {
			s.open.Track(req, resp)
		}
		return resp, err
	}))}
	config := &rest.Config{Host: "https://" + host, QPS: -1, UserAgent: "regent-front"}
	if s.clients, err = controllers.NewClients(config, reading); err != nil {
		return nil, err
	}
	logicalClusters := s.clients.Metadata.Resource(corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"))
	s.clusters = clusters.NewForeignInformer[*metav1.PartialObjectMetadata](clusters.ListWatch[*metav1.PartialObjectMetadataList](metadata.ResourceInterface(logicalClusters)))
	s.members = clusters.NewForeignInformer[*corev1alpha1.Shard](clusters.ListWatch(s.clients.Shards))
	return s, nil
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// move sets the URLs of the shard's replicas.
func (s *shard) move(urls []string) error {
	var replicas []string
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil {
			return fmt.Errorf("shard %s: its Shard object has a faulty URL: %w", s.name, err)
		}
		port := u.Port()
		if port == "" {
			port = "443"
		}
		replicas = append(replicas, net.JoinHostPort(u.Hostname(), port))
	}
	if len(replicas) == 0 {
		return fmt.Errorf("shard %s has no URL: give it one with regent shard set %s --replica=...", s.name, s.name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replicas = replicas
	return nil
}

// dialTimeout is how long a replica may take to accept a connection. Then the next one is tried.
const dialTimeout = time.Second

// dial connects to the first replica that accepts. The one that accepted last is tried first.
func (s *shard) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	s.mu.Lock()
	replicas := s.replicas
	s.mu.Unlock()
	var last error
	for n, replica := range replicas {
		conn, err := (&net.Dialer{Timeout: dialTimeout, KeepAlive: -1}).DialContext(ctx, network, replica)
		if err == nil {
			s.prefer(replicas, n)
			return conn, nil
		}
		if last = err; ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

// prefer puts the n-th of replicas first, unless the replicas have changed.
func (s *shard) prefer(replicas []string, n int) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.replicas) == len(replicas) && &s.replicas[0] == &replicas[0] {
		s.replicas = append(append([]string{}, replicas[n:]...), replicas[:n]...)
	}
}

// run keeps the index up to date with the shard's clusters until ctx ends.
func (s *shard) run(ctx context.Context, x *index) {
	defer s.transport.CloseIdleConnections()
	remove := s.clusters.AddHandler(func(old, new *metav1.PartialObjectMetadata) {
		if new == nil {
			x.unset(clusters.KeyOf(old).Cluster, s.name)
			return
		}
		x.set(clusters.KeyOf(new).Cluster, entry{shard: s.name, path: new.Annotations[core.LogicalClusterPathAnnotationKey], going: new.DeletionTimestamp != nil})
	})
	defer remove()
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { _ = s.clusters.Run(ctx) })
	running.Go(func() { _ = s.members.Run(ctx) })
	running.Go(func() {
		select {
		case <-ctx.Done():
		case <-s.clusters.Synced():
			x.forgetOld(s.name, func(name logicalcluster.Name) bool {
				_, ok := s.clusters.Get(clusters.Key{Cluster: name, Name: corev1alpha1.LogicalClusterName})
				return ok
			})
		}
	})
	s.tellContact(ctx)
}

// watches is how many watches run needs.
const watches = 2

// tellContact logs when the shard begins to be heard, and when it has not been for a while: a watch that ends is begun again at once. It returns
// when ctx ends.
func (s *shard) tellContact(ctx context.Context) {
	log := klog.FromContext(ctx).WithValues("peer", s.name)
	heard, late := false, time.After(shards.UnheardAfter)
	for {
		open, changed := s.open.Count()
		switch all := open >= watches; {
		case all && !heard:
			heard, late = true, nil
			log.Info("A shard is heard")
		case all:
			late = nil
		case heard && late == nil:
			late = time.After(shards.UnheardAfter)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-late:
			heard, late = false, nil
			log.Error(nil, "A shard is not heard: requests go to its clusters as the front last knew them, and names the front does not know are answered with 503")
		}
	}
}

// known reports whether the index has all clusters of the shard.
func (s *shard) known() bool {
	select {
	case <-s.clusters.Synced():
		open, _ := s.open.Count()
		return open >= watches
	default:
		return false
	}
}
