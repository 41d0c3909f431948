package front

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regent-project/regent/pkg/server/fetch"
	"github.com/regent-project/regent/pkg/server/shards"
)

// replicas are those of one shard, for the requests of clients. A shard that reads another one (shards.failover) asks
// the replica that served last, and repeats all that it sends. The front must not: writes may not be repeated, and each
// client stays with one replica. All methods may be called at any time on any goroutine.
type replicas struct {
	shard, fingerprint string
	caller             *shards.Caller

	mu  sync.Mutex
	all []*replica
}

// replica is a replica of a shard.
type replica struct {
	url       string
	transport *shards.Calls
	// unready: it is asked only if all others do not answer.
	unready atomic.Bool
}

func newReplicas(cfg Config, shard, fingerprint string, urls []string) (*replicas, error) {
	r := &replicas{shard: shard, fingerprint: fingerprint, caller: cfg.keys.caller}
	return r, r.move(urls)
}

// maxUnread is how much of an answer that a client does not read the front keeps, in bytes.
const maxUnread = 256 << 10

func (r *replicas) newReplica(url string) (*replica, error) {
	transport, err := r.caller.Calls(r.shard, r.fingerprint, func(config *tls.Config) (*http.Transport, error) { return r.connect(url, config) })
	return &replica{url: url, transport: transport}, err
}

// connect returns a transport to one replica.
func (r *replicas) connect(url string, config *tls.Config) (*http.Transport, error) {
	dialer, err := shards.NewDialer(r.shard, []string{url}, config)
	if err != nil {
		return nil, err
	}
	transport := dialer.Transport()
	transport.HTTP2.MaxReceiveBufferPerStream = maxUnread
	return transport, nil
}

// move sets the URLs. It changes nothing if they are faulty.
func (r *replicas) move(urls []string) error {
	if len(urls) == 0 {
		return fmt.Errorf("shard %s has no URL: give it one with regent shard set %s --replica=https://<host>:<port>", r.shard, r.shard)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*replica
	for _, url := range urls {
		if n := slices.IndexFunc(r.all, func(old *replica) bool { return old.url == url }); n >= 0 {
			all = append(all, r.all[n])
			continue
		}
		one, err := r.newReplica(url)
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	gone := r.all
	r.all = all
	for _, old := range gone {
		if !slices.Contains(all, old) {
			old.transport.CloseIdleConnections()
		}
	}
	return nil
}

// order returns the replicas in the order in which a client asks them: the ready ones first. The same client begins
// with the same one as long as that is ready, so that it does not see older states than it has seen; different clients
// begin with different ones.
func (r *replicas) order(client uint64) []*replica {
	r.mu.Lock()
	all := r.all
	r.mu.Unlock()
	ready, unready := make([]*replica, 0, len(all)), []*replica(nil)
	for n := range uint64(len(all)) {
		if one := all[(client%uint64(len(all))+n)%uint64(len(all))]; one.unready.Load() {
			unready = append(unready, one)
		} else {
			ready = append(ready, one)
		}
	}
	return append(ready, unready...)
}

// send sends a request to a replica. If that does not accept a connection, or breaks it during a request that only
// reads, the next one gets the request; so it does if the replica begins no watch any more, or no read. If all refuse,
// the client is told what the last one said.
func (r *replicas) send(req *http.Request, client uint64) (answer *http.Response, err error) {
	var faults []error
	var refusal *http.Response
	defer func() {
		if refusal != nil && refusal != answer {
			_ = refusal.Body.Close()
		}
	}()
	body, err := keep(req)
	if err != nil {
		return nil, err
	}
	for _, one := range r.order(client) {
		out := req.Clone(req.Context())
		switch {
		case body != nil:
			again := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
			out.Body, _ = again()
			out.GetBody = again
		case out.Body != nil: // the transport closes it also if nothing was sent
			out.Body = io.NopCloser(out.Body)
		}
		resp, err := one.transport.RoundTrip(out)
		if err == nil && one.refuses(req, resp) {
			if refusal != nil {
				_ = refusal.Body.Close()
			}
			refusal = resp
			continue
		}
		if err == nil {
			return resp, nil
		}
		if req.Context().Err() != nil {
			return nil, err
		}
		// The fault may be this request's own, or its client's. Others go elsewhere only if the replica is of
		// no use to them.
		if wasNotSent(err) {
			one.unready.Store(true)
		} else {
			one.isOfUse(req)
		}
		if !wasNotSent(err) && (!readOnly(req.Method) || req.Body != nil) {
			return nil, err // it may have been carried out
		}
		faults = append(faults, err)
	}
	if refusal != nil {
		return refusal, nil
	}
	return nil, errors.Join(faults...)
}

// maxKept is how long a body may be that the front can send again, in bytes.
const maxKept = 64 << 10

// keep reads the body of a request, if it is short. A replica that stops leaves the requests untouched that it had not
// begun with, and says so; the transport sends those again that it has the body of. It sends none again that may have
// been carried out: over HTTP/2, which is all that it speaks, whatever a header says.
func keep(req *http.Request) (body []byte, err error) {
	if req.Body == nil || req.ContentLength <= 0 || req.ContentLength > maxKept {
		return nil, nil
	}
	body = make([]byte, req.ContentLength)
	if _, err := io.ReadFull(req.Body, body); err != nil {
		return nil, fmt.Errorf("cannot read what the client sends: %w", err)
	}
	return body, nil
}

// refuses reports whether an answer says that the replica is about to stop: it serves everything then but new watches,
// until its listener closes, and has clients try again then who come by connections that are open. The front may not
// have heard yet that it is not ready.
func (r *replica) refuses(req *http.Request, resp *http.Response) bool {
	if resp.StatusCode != http.StatusServiceUnavailable {
		return false
	}
	tryAgain := resp.Header.Get("Retry-After") != "" && readOnly(req.Method) && req.Body == nil
	return (isWatch(req) || tryAgain) && !r.isOfUse(req)
}

// isOfUse reports whether a replica is ready that has failed a request, and remembers if it is not. The client may go
// away meanwhile, which says nothing about the replica.
func (r *replica) isOfUse(req *http.Request) bool {
	if !r.unready.Load() && !r.isReady(context.WithoutCancel(req.Context())) {
		r.unready.Store(true)
	}
	return !r.unready.Load()
}

// wasNotSent reports whether a request failed because there was no connection.
func wasNotSent(err error) bool {
	dial := (*net.OpError)(nil)
	return errors.As(err, &dial) && dial.Op == "dial"
}

// readyPeriod is how often a replica is asked whether it is ready, and how long it may take to answer.
const readyPeriod = time.Second

// watch keeps in mind which replicas are ready, until ctx ends. A replica may accept connections and be of no use: its
// etcd may be down.
func (r *replicas) watch(ctx context.Context) {
	tick := time.NewTicker(readyPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r.look(ctx)
	}
}

// look asks all replicas whether they are ready.
func (r *replicas) look(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	for _, one := range r.order(0) {
		asking.Go(func() { one.unready.Store(!one.isReady(ctx)) })
	}
}

func (r *replica) isReady(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, readyPeriod)
	defer cancel()
	return fetch.Check(ctx, r.transport.RoundTrip, "https://"+host+"/readyz") == nil
}

func (r *replicas) close() {
	for _, one := range r.order(0) {
		one.transport.CloseIdleConnections()
	}
}
