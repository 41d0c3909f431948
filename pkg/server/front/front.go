// Package front is the one entrance of an installation: it knows which shard has which logical cluster, and forwards requests there. It has no
// state that lasts, so that any number of fronts may run beside each other.
package front

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/connections"
	"github.com/regent-project/regent/pkg/server/pki"
)

// Config is what New needs.
type Config struct {
	// Membership is that of a front. MembershipFile is the file that it was read from: what is in it counts as soon as it changes. Empty: it never
	// does.
	Membership     *pki.Membership
	MembershipFile string
	// Listener accepts connections. Run closes it. If New fails, the caller does.
	Listener net.Listener
	// Names and Addresses are those under which clients reach the front, for its certificate.
	Names     []string
	Addresses []net.IP
	// ShutdownDelay is how long the front goes on serving, not ready, after Run was asked to end: load balancers need it to stop sending requests.
	// ShutdownTimeout is how long requests may take to finish after that. Watches are ended meanwhile, one by one.
	ShutdownDelay, ShutdownTimeout time.Duration
	// SnapshotFile is where the front keeps what it knows, for its next start. Empty: nowhere. A snapshot that is older than SnapshotAge does
	// not make the front ready.
	SnapshotFile string
	SnapshotAge  time.Duration
	Limits       Limits
	// ClientCAFile names a file with further authorities for users' certificates. It is read again for new connections, and each minute for open
	// ones. It may be empty: only the installation's authority is trusted.
	ClientCAFile string
	// AccessLog makes the front log each request.
	AccessLog bool

	keys *keys
}

// Front forwards requests.
type Front struct {
	cfg   Config
	index *index
	tls   *tls.Config
	trust *trust

	inflight *inflight
	tokens   tokens
	// searches has one element for each search that is under way.
	searches chan struct{}
	streams  streams
	// stopping is closed when Run was asked to end. Each handler holds serving for reading.
	stopping chan struct{}
	serving  sync.RWMutex
	// bodyTimeout and answerTimeout are the constants, except in tests.
	bodyTimeout, answerTimeout time.Duration

	mu     sync.RWMutex
	shards map[string]*shard
	listed bool // the root shard has said who is a member, or a snapshot that is young enough
	// removed: the root shard has said that this front is no member.
	removed bool
	saved   []savedShard
	// heardRoot is when the root shard was last heard, as the snapshot says. Only keepSnapshots uses it once Run runs.
	heardRoot time.Time
}

// New makes a front. Run serves.
func New(cfg Config) (*Front, error) {
	var err error
	if cfg.keys, err = newKeys(cfg); err != nil {
		return nil, err
	}
	f := &Front{
		cfg: cfg, index: newIndex(cfg.Membership.Root.Name), shards: map[string]*shard{}, inflight: newInflight(cfg.Limits),
		stopping: make(chan struct{}), searches: make(chan struct{}, maxSearches), bodyTimeout: bodyTimeout, answerTimeout: answerTimeout,
	}
	if f.trust, err = newTrust(func() []byte { return cfg.keys.now().ca }, cfg.ClientCAFile); err != nil {
		return nil, err
	}
	f.tls = f.trust.config(&tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cfg.keys.now().shown, nil },
		// Certificates of others are no error: a client that shows one may have a token, too.
		ClientAuth: tls.RequestClientCert,
	})
	return f, nil
}

// restore begins with what the snapshot knows, if there is one.
func (f *Front) restore(ctx context.Context) {
	if f.cfg.SnapshotFile == "" {
		return
	}
	s, err := readSnapshot(f.cfg.SnapshotFile, f.cfg.keys.now().authority)
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

// bodyTimeout is how long the body of a request may take. Shards take as long by default for a whole request.
const bodyTimeout = time.Minute

// Run serves until ctx ends, and returns when everything has ended. Call it once.
func (f *Front) Run(ctx context.Context) error {
	registerMetrics()
	server := &http.Server{
		Handler: connections.WithBodyDeadline(f.bodyTimeout, f), TLSConfig: f.tls, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 1 << 20,
		ErrorLog: silent, ConnContext: withIdentity, BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	f.restore(ctx)
	reading, stopReading := context.WithCancel(context.WithoutCancel(ctx))
	keeping, stopKeeping := context.WithCancel(context.WithoutCancel(ctx))
	var readers, running sync.WaitGroup
	defer readers.Wait()
	defer stopReading()
	defer running.Wait() // the last snapshot is written while the shards are still heard
	defer stopKeeping()
	readers.Go(func() { f.cfg.keys.run(reading) })
	readers.Go(func() { f.read(reading) })
	running.Go(func() { f.keepSnapshots(keeping) })
	served := make(chan error, 1)
	listener := connections.Limit(ctx, f.cfg.Listener, f.cfg.Limits.Connections)
	running.Go(func() { served <- server.ServeTLS(listener, "", "") })
	select {
	case err := <-served:
		f.cutOff(server)
		return fmt.Errorf("the front accepts no connections any more: %w", err)
	case <-ctx.Done():
	}
	f.drain(context.WithoutCancel(ctx), server)
	return nil
}

// watchGrace is how long watches may go on at most after the front has begun to refuse connections.
const watchGrace = 5 * time.Second

// drain lets requests finish and ends watches, and returns when nothing is served any more.
func (f *Front) drain(ctx context.Context, server *http.Server) {
	close(f.stopping)
	<-time.After(f.cfg.ShutdownDelay) // a second signal ends the process
	ctx, cancel := context.WithTimeout(ctx, f.cfg.ShutdownTimeout)
	defer cancel()
	var ending sync.WaitGroup
	defer ending.Wait()
	ending.Go(func() { f.streams.endAll(ctx, min(watchGrace, f.cfg.ShutdownTimeout/2)) })
	if err := server.Shutdown(ctx); err != nil {
		klog.FromContext(ctx).Info("Requests are cut off", "after", f.cfg.ShutdownTimeout)
		f.cutOff(server)
	}
	cancel()
}

// cutOff closes all connections, and returns when the handlers have ended. Later ones do not begin.
func (f *Front) cutOff(server *http.Server) {
	_ = server.Close()
	f.serving.Lock()
}

// running is a shard that is read.
type running struct {
	*shard
	stop  context.CancelFunc
	ended chan struct{}
}

// reader reads the shards that the root shard lists. Only read uses it.
type reader struct {
	*Front
	// by is the membership by which it reads: it has the root shard's URLs.
	by  *standing
	now map[string]*running
	// changed gets a value when the root shard lists others. Its capacity is 1.
	changed chan struct{}
}

// read keeps the shards as the root shard lists them, and the index as the shards say, until ctx ends.
func (f *Front) read(ctx context.Context) {
	r := &reader{Front: f, by: f.cfg.keys.now(), now: map[string]*running{}, changed: make(chan struct{}, 1)}
	defer func() {
		for _, one := range r.now {
			one.stop()
			<-one.ended
		}
	}()
	for _, saved := range f.saved {
		r.start(ctx, saved.Name, saved.Authority, saved.URLs)
	}
	if r.now[r.by.Root.Name] == nil {
		r.start(ctx, r.by.Root.Name, "", r.by.Root.URLs)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
			r.adjust(ctx)
		case by := <-f.cfg.keys.changed:
			r.use(ctx, by)
		}
	}
}

// use reads by another membership.
func (r *reader) use(ctx context.Context, by *standing) {
	if by.n <= r.by.n {
		return
	}
	moved := !slices.Equal(by.Root.URLs, r.by.Root.URLs)
	r.by = by
	root := r.now[by.Root.Name]
	switch {
	case root == nil:
		r.start(ctx, by.Root.Name, "", by.Root.URLs)
		return
	case moved: // its Shard object says the rest, once it is heard
		r.move(ctx, root, by.Root.URLs)
	}
	select {
	case <-root.members.Synced():
		r.adjust(ctx)
	default:
	}
}

// start begins to read a shard.
func (r *reader) start(ctx context.Context, name, fingerprint string, urls []string) {
	s, err := newShard(r.cfg, name, fingerprint, r.by.Root.ReplicasOf(name, urls))
	if err != nil {
		klog.FromContext(ctx).Error(err, "A shard cannot be reached until its Shard object changes", "peer", name)
		return
	}
	ctx, stop := context.WithCancel(ctx)
	one := &running{shard: s, stop: stop, ended: make(chan struct{})}
	r.now[name] = one
	r.mu.Lock()
	r.shards[name] = s
	r.mu.Unlock()
	remove := func() {}
	if name == r.by.Root.Name {
		remove = s.members.AddHandler(func(_, _ *corev1alpha1.Shard) {
			select {
			case r.changed <- struct{}{}:
			default:
			}
		})
	}
	go func() {
		defer close(one.ended)
		defer remove()
		s.run(ctx, r.index)
	}()
}

// end ends the reading of a shard, and forgets its clusters.
func (r *reader) end(name string) {
	one := r.now[name]
	one.stop()
	<-one.ended
	delete(r.now, name)
	r.mu.Lock()
	delete(r.shards, name)
	unmeasure(name)
	r.mu.Unlock()
	r.index.forget(name)
}

// move makes requests to a shard go to other URLs.
func (r *reader) move(ctx context.Context, one *running, urls []string) {
	r.mu.Lock()
	one.urls = urls
	r.mu.Unlock()
	if err := one.replicas.move(urls); err != nil {
		klog.FromContext(ctx).Error(err, "A shard stays where it was", "peer", one.name)
	}
}

// tellMembership keeps in mind whether the root shard says that this front, with this membership, is a member. Shards refuse it if it is not.
func (r *reader) tellMembership(ctx context.Context, member bool) {
	r.mu.Lock()
	changed := r.removed == member
	r.removed = !member
	r.mu.Unlock()
	if !member && changed {
		klog.FromContext(ctx).Error(nil, "This front is no member of the installation any more: stop it, or give it a new membership (regent front add)")
	}
}

// adjust reads those shards that the root shard lists, and no others. It goes on reading the root shard, which says who they are.
func (r *reader) adjust(ctx context.Context) {
	root := r.now[r.by.Root.Name]
	if root == nil {
		return // start has said why
	}
	wanted := map[string]*corev1alpha1.Shard{}
	for _, s := range root.members.List(clusters.Root) {
		if !clusters.IsRemoved(s) {
			wanted[s.Name] = s
		}
	}
	for name, one := range r.now {
		s := wanted[name]
		switch {
		case s == nil && name == r.by.Root.Name:
		case s == nil, s.Annotations[clusters.AuthorityAnnotation] != one.fingerprint:
			r.end(name)
		default:
			if urls := r.by.Root.ReplicasOf(name, clusters.ReplicasOf(s)); !slices.Equal(urls, one.urls) {
				r.move(ctx, one, urls)
			}
		}
	}
	if own := wanted[r.by.Root.Name]; own != nil {
		r.tellMembership(ctx, r.by.authority.IsAuthority(own.Annotations[clusters.FrontAnnotationPrefix+r.by.Member.Name]))
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if r.now[name] == nil {
			r.start(ctx, name, wanted[name].Annotations[clusters.AuthorityAnnotation], clusters.ReplicasOf(wanted[name]))
		}
	}
	r.mu.Lock()
	r.listed = len(wanted) > 0
	r.mu.Unlock()
	r.index.touch() // the next snapshot lists the shards as they are now
}

// hearsRoot reports whether the root shard is heard.
func (f *Front) hearsRoot() bool {
	s, ok := f.shard(f.cfg.Membership.Root.Name)
	return ok && s.known()
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
