package storage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"
)

// The timings with which a member of etcd that does not serve is noticed. Each is asked every askEvery. It is avoided
// once it has not answered for patience while another member has.
const (
	askEvery = 500 * time.Millisecond
	patience = time.Second
)

// errAvoided is the error of dialling a member that is avoided.
var errAvoided = errors.New("this member of etcd does not serve, and others do")

// members keeps calls and watches away from members of etcd that do not serve because they hang or are cut off from the
// others. gRPC alone finds broken connections only, and silent ones after 10 s at the earliest. Until then it sends
// every n-th call to a hanging member, and existing watches stand still.
//
// Each member is asked for a linearizable read, on a connection of its own. If a member does not answer while another
// does, its connections are closed, so that calls and watches move to other members. No new connections to it are made
// until it answers again. If no member answers, none is avoided: the fault is not the member's then.
type members struct {
	all []*member

	mu sync.Mutex // of the state of all members
}

// member is one endpoint.
type member struct {
	endpoint string
	address  string // the address that etcd's client dials

	// Guarded by members.mu.
	conns    map[*memberConn]struct{}
	avoided  bool
	answered time.Time // when the last answered question was asked
	silent   time.Time // when the first of the unanswered questions was asked; zero if the last one was answered
	fault    error     // the error of the last unanswered question
}

// newMembers returns the members at endpoints.
func newMembers(endpoints []string) *members {
	ms := &members{}
	for _, endpoint := range endpoints {
		m := &member{endpoint: endpoint, address: endpoint, conns: map[*memberConn]struct{}{}}
		if u, err := url.Parse(endpoint); err == nil && u.Host != "" {
			m.address = u.Host
		}
		ms.all = append(ms.all, m)
	}
	return ms
}

// several reports whether there is more than one member.
func (ms *members) several() bool { return len(ms.all) > 1 }

// options returns dial options for the client that must not connect to avoided members.
func (ms *members) options() []grpc.DialOption {
	if !ms.several() {
		return nil
	}
	return []grpc.DialOption{grpc.WithContextDialer(ms.dial)}
}

// watch asks every member for key until ctx ends. open makes a client for each.
func (ms *members) watch(ctx context.Context, open func(endpoint string) (*kubernetes.Client, error), key string) error {
	if !ms.several() {
		return nil
	}
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends those that were started before one could not be
	for _, m := range ms.all {
		client, err := open(m.endpoint)
		if err != nil {
			return fmt.Errorf("cannot ask the member of etcd at %s: %w", m.endpoint, err)
		}
		memberServes.WithLabelValues(m.endpoint).Set(1)
		asking.Go(func() {
			defer func() { _ = client.Close() }()
			// client.KV would try again until the context ends, and return the context's error. This client
			// says what is wrong.
			ms.ask(ctx, m, pb.NewKVClient(client.ActiveConnection()), key)
		})
	}
	<-ctx.Done()
	return nil
}

// ask asks one member again and again until ctx ends.
func (ms *members) ask(ctx context.Context, m *member, kv pb.KVClient, key string) {
	for ctx.Err() == nil {
		start := time.Now()
		question, cancel := context.WithDeadline(clientv3.WithRequireLeader(ctx), start.Add(patience))
		_, err := kv.Range(question, &pb.RangeRequest{Key: []byte(key), KeysOnly: true})
		cancel()
		now := time.Now()
		if ctx.Err() != nil {
			return
		}
		switch {
		case err == nil:
			ms.hear(ctx, m, start)
		case now.Sub(start) > patience+askEvery: // this process itself was paused, and cannot tell
			ms.pardon(m)
		default:
			ms.miss(ctx, m, start, err)
		}
		pause(ctx, askEvery-time.Since(start))
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// hear records that m has answered a question that was asked at that time.
func (ms *members) hear(ctx context.Context, m *member, start time.Time) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if !slices.ContainsFunc(ms.all, func(other *member) bool { return other.silent.IsZero() }) {
		// No member has answered until now, so the silence of the others says nothing about them.
		for _, other := range ms.all {
			other.silent = time.Now()
		}
	}
	m.answered, m.silent = start, time.Time{}
	if m.avoided {
		m.avoided = false
		memberServes.WithLabelValues(m.endpoint).Set(1)
		klog.FromContext(ctx).Info("A member of etcd serves again", "endpoint", m.endpoint)
	}
	ms.judge(ctx)
}

// miss records that m has not answered a question that was asked at that time, and why.
func (ms *members) miss(ctx context.Context, m *member, start time.Time, fault error) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m.fault = fault
	if m.silent.IsZero() {
		m.silent = start
	}
	ms.judge(ctx)
}

// pardon forgets that m has been silent.
func (ms *members) pardon(m *member) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m.silent = time.Time{}
}

// judge avoids members that have been silent for too long, if another member has answered a question that was asked
// clearly later. An answer to a question of nearly the same time proves nothing: it may have come just before all fell
// silent.
func (ms *members) judge(ctx context.Context) {
	var heard time.Time
	for _, m := range ms.all {
		if m.silent.IsZero() && m.answered.After(heard) {
			heard = m.answered
		}
	}
	for _, m := range ms.all {
		if m.avoided || m.silent.IsZero() || time.Since(m.silent) < patience || !heard.After(m.silent.Add(askEvery)) {
			continue
		}
		m.avoided = true
		memberServes.WithLabelValues(m.endpoint).Set(0)
		klog.FromContext(ctx).Error(m.fault, "A member of etcd does not answer, others do: it is avoided until it answers. Look after it", "endpoint", m.endpoint)
		for conn := range m.conns {
			_ = conn.Conn.Close()
		}
	}
}

// dial opens a connection to a member, unless it is avoided.
func (ms *members) dial(ctx context.Context, address string) (net.Conn, error) {
	m := ms.at(address)
	if m == nil {
		return dial(ctx, address)
	}
	if ms.avoids(m) {
		return nil, fmt.Errorf("%s: %w", m.endpoint, errAvoided)
	}
	conn, err := dial(ctx, address)
	if err != nil {
		return nil, err
	}
	mine := &memberConn{Conn: conn, members: ms, member: m}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if m.avoided {
		_ = conn.Close()
		return nil, fmt.Errorf("%s: %w", m.endpoint, errAvoided)
	}
	m.conns[mine] = struct{}{}
	return mine, nil
}

// Member is a member of etcd, as this process knows it.
type Member struct {
	Endpoint string
	// Serves is false for a member that does not answer this process while another one does.
	Serves bool
}

// Members returns the members of etcd. Any goroutine may call it at any time. It asks nobody.
func (c *Client) Members() []Member { return c.members.list() }

func (ms *members) list() []Member {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	out := make([]Member, len(ms.all))
	for n, m := range ms.all {
		out[n] = Member{m.endpoint, !m.avoided}
	}
	return out
}

func (ms *members) avoids(m *member) bool {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return m.avoided
}

// at returns the member that etcd's client dials at address, or nil.
func (ms *members) at(address string) *member {
	for _, m := range ms.all {
		if m.address == address {
			return m
		}
	}
	return nil
}

// dial opens a connection to an address of etcd's client: host:port, or the path of a socket behind "unix:".
func dial(ctx context.Context, address string) (net.Conn, error) {
	network := "tcp"
	if path, found := strings.CutPrefix(address, "unix:"); found {
		network, address = "unix", strings.TrimPrefix(path, "//")
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// memberConn is a connection that its member knows, so that it can be closed.
type memberConn struct {
	net.Conn
	members *members
	member  *member
}

// Close implements net.Conn.
func (c *memberConn) Close() error {
	c.members.mu.Lock()
	delete(c.member.conns, c)
	c.members.mu.Unlock()
	return c.Conn.Close()
}
