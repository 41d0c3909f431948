// Package front is the one entrance of an installation: it knows which shard has which logical cluster, and forwards
// requests there. It has no state that lasts, so that any number of fronts may run beside each other.
package front

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/server/connections"
	"github.com/regent-project/regent/pkg/server/pki"
)

// Config is what New needs.
type Config struct {
	// Membership is that of a front. MembershipFile is the file that it was read from: what is in it counts as soon
	// as it changes. Empty: it never does.
	Membership     *pki.Membership
	MembershipFile string
	// Listener accepts connections. Run closes it. If New fails, the caller does.
	Listener net.Listener
	// Names and Addresses are those under which clients reach the front, for its certificate.
	Names     []string
	Addresses []net.IP
	// ShutdownDelay is how long the front goes on serving, not ready, after Run was asked to end: load balancers
	// need it to stop sending requests. ShutdownTimeout is how long requests may take to finish after that. Watches
	// are ended meanwhile, one by one.
	ShutdownDelay, ShutdownTimeout time.Duration
	// SnapshotFile is where the front keeps what it knows, for its next start. Empty: nowhere. A snapshot that is
	// older than SnapshotAge does not make the front ready.
	SnapshotFile string
	SnapshotAge  time.Duration
	Limits       Limits
	// ClientCAFile names a file with further authorities for users' certificates. It is read again for new
	// connections, and each minute for open ones. It may be empty: only the installation's authority is trusted.
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
	grants   grants
	// searches has one element for each search that is under way.
	searches chan struct{}
	streams  streams
	// stopping is closed when Run was asked to end. Each handler holds serving for reading.
	stopping chan struct{}
	serving  sync.RWMutex
	farewell connections.Farewell
	// noAnswers bounds log lines about shards that do not answer: clients decide how many there are.
	noAnswers *rate.Limiter
	// bodyTimeout, answerTimeout and liveTimeout are the constants, except in tests.
	bodyTimeout, answerTimeout, liveTimeout time.Duration

	mu      sync.RWMutex
	shards  map[string]*shard
	hasList bool // the root shard has said who is a member, or a snapshot that is young enough
	// isRemoved: the root shard has said that this front is no member.
	isRemoved    bool
	fromSnapshot []savedShard
	// heardRoot is when the root shard was last heard, as the snapshot says. Only keepSnapshots uses it once Run
	// runs.
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
		stopping: make(chan struct{}), noAnswers: rate.NewLimiter(1, 10), searches: make(chan struct{}, maxSearches), bodyTimeout: bodyTimeout, answerTimeout: answerTimeout, liveTimeout: liveTimeout,
	}
	if f.trust, err = newTrust(func() []byte { return cfg.keys.now().ca }, cfg.ClientCAFile); err != nil {
		return nil, err
	}
	f.tls = f.trust.config(&tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cfg.keys.now().certificate, nil },
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
	f.fromSnapshot, f.heardRoot, f.hasList = s.Shards, s.At, time.Since(s.At) <= f.cfg.SnapshotAge
}

// readHeaderTimeout is how long a client may take to send the header of a request, idleTimeout how long a connection
// may be idle.
const readHeaderTimeout, idleTimeout = 30 * time.Second, 90 * time.Second

// bodyTimeout is how long the body of a request may take. Shards take as long by default for a whole request.
const bodyTimeout = time.Minute

// Run serves until ctx ends, and returns when everything has ended. Call it once.
func (f *Front) Run(ctx context.Context) error {
	registerMetrics()
	listener := connections.Limit(ctx, f.cfg.Listener, f.cfg.Limits.Connections)
	server := &http.Server{
		Handler: listener.Serving(f.farewell.Serving(connections.WithBodyDeadline(f.bodyTimeout, f))), TLSConfig: f.tls, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 1 << 20,
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
	running.Go(func() { listener.CloseUnused(keeping) })
	served := make(chan error, 1)
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
	f.farewell.Wait(f.cfg.ShutdownDelay) // a second signal ends the process
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

// hearsRoot reports whether the root shard is heard.
func (f *Front) hearsRoot() bool {
	s, ok := f.shard(f.cfg.Membership.Root.Name)
	return ok && s.isKnown()
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
		if !s.isKnown() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, len(f.shards)
}
