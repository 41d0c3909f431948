package detect

import (
	"cmp"
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election"
)

const (
	// handshakeTimeout is how long a connection may take to become a stream.
	handshakeTimeout = 5 * time.Second
	// stallTimeout is how long a standby may accept no data, or answer nothing.
	stallTimeout = 10 * time.Second
)

// Open opens the probe for processes that know the secret that the replicas share. Call it once, before Follow and
// before the Elector runs, but as late as possible otherwise: when a process dies, the kernel closes first what was
// opened last.
func (d *Detector) Open(ctx context.Context, secret []byte) error {
	if len(secret) == 0 {
		return errors.New("the probe needs the secret that the replicas share")
	}
	listener, err := listen(ctx, d.cfg.Listen)
	if err != nil {
		return err
	}
	d.witness = d.listenWitness(ctx, listener)
	d.open(ctx, secret, listener)
	return nil
}

// open serves the probe on a listener.
func (d *Detector) open(ctx context.Context, secret []byte, listener net.Listener) {
	listener = newLimitedListener(listener, d.cfg.Name, d.handshake, klog.FromContext(ctx))
	d.secret, d.listener = secret, listener
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+path, d.serve)
	d.server = &http.Server{
		Handler:           mux,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{d.certificate}},
		Protocols:         protocols,
		ReadHeaderTimeout: d.handshake,
		WriteTimeout:      d.handshake, // serve sets later deadlines for a stream
		IdleTimeout:       d.handshake,
		MaxHeaderBytes:    maxHeaderLength,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 1, MaxReadFrameSize: 16 << 10,
			// Close connections to peers that accept no data, or have disappeared.
			WriteByteTimeout: d.stall, SendPingTimeout: d.stall, PingTimeout: d.stall,
		},
		ErrorLog:    log.New(io.Discard, "", 0), // nobody can act on what strangers send
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ConnContext: withConn,
	}
	d.serveAt(ctx, listener)
	if d.witness != nil {
		d.serveAt(ctx, d.witness)
	}
	klog.FromContext(ctx).V(2).Info("The probe is open", "address", d.Contact().Address)
}

func (d *Detector) serveAt(ctx context.Context, listener net.Listener) {
	d.serving.Go(func() {
		if err := d.server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "The probe has failed: standbys take this process for dead when it leads. Restart it")
		}
	})
}

// connKey is the context key of a request's *limitedConn.
type connKey struct{}

// withConn puts a connection into the context of its requests.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	return context.WithValue(ctx, connKey{}, conn)
}

// Close closes the probe for good, and returns when no replica follows this process any more. To followers it looks as
// if the process had died, so call it after Elector.Run has returned. The metrics show its Leases no more, unless
// another Detector does.
func (d *Detector) Close() {
	d.mu.Lock()
	d.closing = true
	names := d.shown
	d.shown = nil
	d.mu.Unlock()
	if d.server != nil {
		_ = d.server.Close()
		d.serving.Wait()
	}
	for _, name := range names {
		hide(name)
	}
}

// enter counts a request that Close waits for. It returns false if the probe is closing.
func (d *Detector) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closing {
		d.serving.Add(1)
	}
	return !d.closing
}

// Say sends s to all followers at once.
func (d *Detector) Say(s election.Statement) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.said = s
	close(d.spoke)
	d.spoke = make(chan struct{})
}

// Confirmations returns a channel with what followers confirm. A confirmation that nobody receives is dropped.
func (d *Detector) Confirmations() <-chan election.Confirmation { return d.confirmations }

// Followers returns the replicas that follow this process, ordered by name.
func (d *Detector) Followers() []election.Standby {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.SortedFunc(maps.Keys(d.followers), func(a, b election.Standby) int { return cmp.Compare(a.Replica, b.Replica) })
}

// serve serves the stream of one standby.
func (d *Detector) serve(w http.ResponseWriter, req *http.Request) {
	if !d.enter() {
		return
	}
	defer d.serving.Done()
	presented, ok := strings.CutPrefix(req.Header.Get("Authorization"), bearer)
	if !ok || subtle.ConstantTimeCompare([]byte(presented), []byte(credential(d.secret, d.fingerprint))) != 1 {
		http.Error(w, "the probe is for replicas that share its secret", http.StatusUnauthorized)
		return
	}
	if conn, ok := req.Context().Value(connKey{}).(*limitedConn); !ok || !conn.authenticate() {
		http.Error(w, fmt.Sprintf("the probe has %d connections of replicas already", mostAuthenticated), http.StatusServiceUnavailable)
		return
	}
	replica := req.Header.Get(replicaHeader)
	interval, err := time.ParseDuration(req.Header.Get(intervalHeader))
	if replica == "" || len(replica) > longestReplica || err != nil || interval < shortestInterval || interval > longestInterval {
		http.Error(w, "the probe needs a replica and an interval", http.StatusBadRequest)
		return
	}
	standby := election.Standby{Replica: replica, Mode: election.ModeName(req.Header.Get(modeHeader))}
	if instance := req.Header.Get(instanceHeader); len(instance) <= longestHolder {
		standby.Instance = instance // older versions send none
	}
	if led := req.Header.Get(ledHeader); len(led) <= longestHolder {
		standby.Led = led
	}
	if priority, err := strconv.ParseInt(req.Header.Get(priorityHeader), 10, 32); err == nil {
		standby.Priority = int32(priority) // older versions send none
	}
	if url := req.Header.Get(urlHeader); len(url) <= longestURL {
		standby.URL = url // older versions send none
	}
	defer d.followedBy(standby)()
	if d.witness != nil {
		w.Header().Set(witnessHeader, portOf(d.witness))
	}
	stream := http.NewResponseController(w)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer func() { _ = stream.SetReadDeadline(time.Now()) }()
	ended := make(chan struct{}) // also by a line that is malformed: what comes after it would not be heard
	reading.Go(func() {
		defer close(ended)
		_ = lines(req.Body, func(c confirmation) {
			if confirmed, any := c.by(standby); any {
				select {
				case d.confirmations <- confirmed:
				default:
				}
			}
		})
	})
	every := time.NewTicker(interval)
	defer every.Stop()
	for {
		d.mu.Lock()
		said, spoke := d.said, d.spoke
		d.mu.Unlock()
		_ = stream.SetWriteDeadline(time.Now().Add(interval + d.stall))
		if _, err := w.Write(lineOf(said)); err != nil {
			return
		}
		if err := stream.Flush(); err != nil {
			return
		}
		select {
		case <-req.Context().Done():
			return
		case <-ended:
			return
		case <-spoke:
		case <-every.C:
		}
	}
}

// followedBy counts a stream of a standby until the function that it returns is called. A standby has two streams: to
// the probe, and to the witness.
func (d *Detector) followedBy(standby election.Standby) (over func()) {
	count := func(n int) (changed bool) {
		d.mu.Lock()
		defer d.mu.Unlock()
		before := d.followers[standby]
		if d.followers[standby] += n; d.followers[standby] == 0 {
			delete(d.followers, standby)
		}
		processes := map[string]bool{} // one may follow for several Leases
		for s := range d.followers {
			processes[cmp.Or(s.Instance, s.Replica)] = true
		}
		followers.Set(float64(len(processes)), d.cfg.Name)
		return before == 0 || before+n == 0
	}
	tell := func(n int) {
		if count(n) && d.cfg.Changed != nil {
			d.cfg.Changed()
		}
	}
	tell(1)
	return func() { tell(-1) }
}
