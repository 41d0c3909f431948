package etcd

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

const (
	// handshakeTimeout is how long a TLS handshake may take. A connection without a key can delay the end of
	// serving by as long.
	handshakeTimeout = 5 * time.Second
	// leastConnections is how many connections are allowed in any case. A replica needs one.
	leastConnections = 128
	// streamGrace is how long clients' streams may go on when etcd is asked to stop.
	streamGrace = 5 * time.Second
)

// serving serves gRPC to clients that hold the key. etcd's own server puts gRPC with TLS behind net/http, where a busy
// watch can starve others (etcd issue 15402).
type serving struct {
	listener net.Listener
	tls      *tls.Config

	grpc *grpc.Server // nil until start
	all  sync.WaitGroup
}

// listen opens the listener. Clients wait in its queue until start. Once the given number of connections is open,
// further ones wait there too: even clients without the key, who get no answer, must not use up all file descriptors.
func listen(port int, key tls.Certificate, connections int) (*serving, error) {
	// Not a Unix socket in the directory: its path may have 108 bytes at most, and a root directory's may be
	// longer.
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("the embedded etcd cannot listen: %w", err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(key.Leaf)
	return &serving{listener: transport.LimitListener(listener, connections), tls: &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{key}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusted,
	}}, nil
}

// roomFor returns how many connections may be open, given how many file descriptors the process may open. The API
// server in the same process needs most of them.
func roomFor(descriptors uint64) int {
	return int(max(leastConnections, min(descriptors/8, 1<<20)))
}

// descriptors returns how many files and sockets the process may open, or 0 if that is unknown.
func descriptors() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return limit.Cur
}

// start answers clients until close. It calls failed if serving ends earlier.
func (s *serving) start(member *etcdserver.EtcdServer, failed func(error)) {
	s.grpc = v3rpc.Server(member, s.tls, nil,
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: embed.DefaultGRPCKeepAliveMinTime}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: embed.DefaultGRPCKeepAliveInterval, Timeout: embed.DefaultGRPCKeepAliveTimeout}),
	)
	s.all.Go(func() {
		if err := s.grpc.Serve(s.listener); err != nil {
			failed(fmt.Errorf("the embedded etcd serves no more: %w", err))
		}
	})
}

// close lets requests in flight finish, cuts streams after streamGrace, and returns when everything has ended.
func (s *serving) close() {
	if s.grpc == nil {
		_ = s.listener.Close()
		return
	}
	graceful := make(chan struct{})
	s.all.Go(func() {
		defer close(graceful)
		s.grpc.GracefulStop()
	})
	select {
	case <-graceful:
	case <-time.After(streamGrace):
		s.grpc.Stop()
	}
	s.all.Wait()
}
