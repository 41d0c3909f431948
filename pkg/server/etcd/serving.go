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
	// handshakeTimeout is how long a connection may take to show its key, and how long one that does not may hold up the end.
	handshakeTimeout = 5 * time.Second
	// leastConnections is how many connections there is always room for. A replica needs one.
	leastConnections = 128
	// streamGrace is how long clients' streams may go on when etcd is asked to stop.
	streamGrace = 5 * time.Second
)

// serving answers clients who hold the key. etcd's own way to serve TLS puts gRPC and HTTP on one listener, where gRPC goes
// through net/http and a busy watch can starve others (etcd issue 15402); here is gRPC alone.
type serving struct {
	listener net.Listener
	tls      *tls.Config

	grpc *grpc.Server // nil before start
	all  sync.WaitGroup
}

// listen opens the listener. Clients wait in its queue until start.
// Strangers wait there, too, once so many connections are open: they are not answered, but could take all file descriptors.
func listen(port int, key tls.Certificate, connections int) (*serving, error) {
	// Not a Unix socket in the directory: its path may have 108 bytes at most, and a root directory's may be longer.
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

// roomFor is how many connections may be open in a process that may open so many files: the API server in it needs most.
func roomFor(descriptors uint64) int {
	return int(max(leastConnections, min(descriptors/8, 1<<20)))
}

// descriptors is how many files and sockets the process may open, 0 if that is not known.
func descriptors() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return limit.Cur
}

// start answers clients until close. failed is called if that ends before.
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

// close lets requests in flight finish, cuts streams after a while, and returns when all have ended.
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
