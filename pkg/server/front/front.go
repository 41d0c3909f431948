// Package front is the one entrance of an installation: it knows which shard has which logical cluster, and forwards requests there. It has no
// state that lasts, so that any number of fronts may run beside each other.
package front

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/pki"
)

// Config is what New needs.
type Config struct {
	// Membership is that of a front.
	Membership *pki.Membership
	// Listener accepts connections. New takes it over.
	Listener net.Listener
	// Names and Addresses are those under which clients reach the front, for its certificate.
	Names     []string
	Addresses []net.IP
	// ShutdownTimeout is how long requests may take to finish after Run was asked to end. Watches are ended at once after it.
	ShutdownTimeout time.Duration
	// SnapshotFile is where the front keeps what it knows, for its next start. Empty: nowhere. A snapshot that is older than SnapshotAge does
	// not make the front ready.
	SnapshotFile string
	SnapshotAge  time.Duration

	authority *pki.Authority
}

// Front forwards requests.
type Front struct {
	cfg   Config
	index *index
	tls   *tls.Config
	trust *x509.CertPool

	mu     sync.RWMutex
	shards map[string]*shard
	listed bool // the root shard has said who is a member, or a snapshot that is young enough
	saved  []savedShard
	// heardRoot is when the root shard was last heard, as the snapshot says. Only keepSnapshots uses it once Run runs.
	heardRoot time.Time
}

// New makes a front. Run serves.
func New(cfg Config) (*Front, error) {
	if cfg.Membership == nil || cfg.Membership.Member.Kind != pki.KindFront {
		return nil, errors.New("a front needs the membership of a front: have it made by regent front add")
	}
	var err error
	if cfg.authority, err = cfg.Membership.Authority(); err != nil {
		return nil, err
	}
	certPEM, keyPEM, err := cfg.authority.Serve(cfg.Names, cfg.Addresses)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("the front's certificate is not usable: %w", err)
	}
	f := &Front{cfg: cfg, index: newIndex(cfg.Membership.Root.Name), shards: map[string]*shard{}, trust: x509.NewCertPool()}
	if !f.trust.AppendCertsFromPEM([]byte(cfg.Membership.CertificateAuthority)) {
		return nil, errors.New("the membership has no certificate of the installation's authority")
	}
	f.tls = &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"},
		// Certificates of others are no error: a client that shows one may have a token, too.
		ClientAuth: tls.RequestClientCert, ClientCAs: f.trust,
	}
	return f, nil
}

// restore begins with what the snapshot knows, if there is one.
func (f *Front) restore(ctx context.Context) {
	if f.cfg.SnapshotFile == "" {
		return
	}
	s, err := readSnapshot(f.cfg.SnapshotFile, f.cfg.authority)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The front begins without a snapshot: it is not ready before it has heard the root shard")
	}
	if err != nil || s == nil {
		return
	}
	s.fill(f.index)
	f.saved, f.heardRoot, f.listed = s.Shards, s.At, time.Since(s.At) <= f.cfg.SnapshotAge
}

// readHeaderTimeout is how long a client may take to send the header of a request, idleTimeout how long a connection may be idle.
const readHeaderTimeout, idleTimeout = 30 * time.Second, 90 * time.Second

// Run serves until ctx ends, and returns when everything has ended. Call it once.
func (f *Front) Run(ctx context.Context) error {
	server := &http.Server{
		Handler: f, TLSConfig: f.tls, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 1 << 20,
		ErrorLog: log.New(io.Discard, "", 0), // nobody can act on what strangers send
	}
	f.restore(ctx)
	reading, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { f.read(reading) })
	running.Go(func() { f.keepSnapshots(reading) })
	served := make(chan error, 1)
	running.Go(func() { served <- server.ServeTLS(f.cfg.Listener, "", "") })
	select {
	case err := <-served:
		return fmt.Errorf("the front accepts no connections any more: %w", err)
	case <-ctx.Done():
	}
	finishing, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.cfg.ShutdownTimeout)
	defer cancel()
	if err := server.Shutdown(finishing); err != nil {
		klog.FromContext(ctx).Info("Requests are cut off", "after", f.cfg.ShutdownTimeout)
		_ = server.Close()
	}
	return nil
}

// running is a shard that is read.
type running struct {
	*shard
	stop  context.CancelFunc
	ended chan struct{}
}

// read keeps the shards as the root shard lists them, and the index as the shards say, until ctx ends.
func (f *Front) read(ctx context.Context) {
	now := map[string]*running{}
	changed := make(chan struct{}, 1)
	defer func() {
		for _, r := range now {
			r.stop()
			<-r.ended
		}
	}()
	root := f.cfg.Membership.Root
	for _, saved := range f.saved {
		f.start(ctx, now, changed, saved.Name, saved.Authority, f.urlsOf(saved.Name, saved.URLs))
	}
	if now[root.Name] == nil {
		f.start(ctx, now, changed, root.Name, "", root.URLs)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			f.adjust(ctx, now, changed)
		}
	}
}

// start begins to read a shard.
func (f *Front) start(ctx context.Context, now map[string]*running, changed chan struct{}, name, fingerprint string, urls []string) {
	s, err := newShard(f.cfg, name, fingerprint, urls)
	if err != nil {
		klog.FromContext(ctx).Error(err, "A shard cannot be reached until its Shard object changes", "peer", name)
		return
	}
	ctx, stop := context.WithCancel(ctx)
	r := &running{shard: s, stop: stop, ended: make(chan struct{})}
	now[name] = r
	f.mu.Lock()
	f.shards[name] = s
	f.mu.Unlock()
	remove := func() {}
	if name == f.cfg.Membership.Root.Name {
		remove = s.members.AddHandler(func(_, _ *corev1alpha1.Shard) {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}
	go func() {
		defer close(r.ended)
		defer remove()
		s.run(ctx, f.index)
	}()
}

// adjust reads those shards that the root shard lists, and no others.
func (f *Front) adjust(ctx context.Context, now map[string]*running, changed chan struct{}) {
	rootName := f.cfg.Membership.Root.Name
	wanted := map[string]*corev1alpha1.Shard{}
	for _, s := range now[rootName].members.List(clusters.Root) {
		if !clusters.IsRemoved(s) {
			wanted[s.Name] = s
		}
	}
	for name, r := range now {
		s := wanted[name]
		switch {
		case s == nil && name != rootName, s != nil && s.Annotations[clusters.AuthorityAnnotation] != r.fingerprint:
			r.stop()
			<-r.ended
			delete(now, name)
			f.mu.Lock()
			delete(f.shards, name)
			f.mu.Unlock()
			f.index.forget(name)
		case s != nil && !slices.Equal(f.urlsOf(name, clusters.ReplicasOf(s)), r.urls):
			f.mu.Lock()
			r.urls = f.urlsOf(name, clusters.ReplicasOf(s))
			f.mu.Unlock()
			if err := r.move(r.urls); err != nil {
				klog.FromContext(ctx).Error(err, "A shard stays where it was", "peer", name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if now[name] == nil {
			f.start(ctx, now, changed, name, wanted[name].Annotations[clusters.AuthorityAnnotation], clusters.ReplicasOf(wanted[name]))
		}
	}
	f.mu.Lock()
	f.listed = len(wanted) > 0
	f.mu.Unlock()
	f.index.touch() // the next snapshot lists the shards as they are now
}

// hearsRoot reports whether the root shard is heard.
func (f *Front) hearsRoot() bool {
	s, ok := f.shard(f.cfg.Membership.Root.Name)
	return ok && s.known()
}

// urlsOf returns the URLs of a shard's replicas. For the root shard those of the membership come last: if it has moved, a new membership says
// where to.
func (f *Front) urlsOf(name string, urls []string) []string {
	urls = slices.Clone(urls)
	if name != f.cfg.Membership.Root.Name {
		return urls
	}
	for _, url := range f.cfg.Membership.Root.URLs {
		if !slices.Contains(urls, url) {
			urls = append(urls, url)
		}
	}
	return urls
}

// shard returns a shard by name.
func (f *Front) shard(name string) (*shard, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	s, ok := f.shards[name]
	return s, ok
}

// unheard returns the names of the shards whose clusters the front may not all know, and how many shards there are.
func (f *Front) unheard() (names []string, all int) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for name, s := range f.shards {
		if !s.known() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, len(f.shards)
}
