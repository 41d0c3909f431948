package etcd

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strconv"
	"sync"
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
	// maxConnections bounds what strangers, who are not answered but may connect, take of the process's file descriptors. A
	// replica needs one connection.
	maxConnections = 128
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
func listen(port int, key tls.Certificate) (*serving, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("the embedded etcd cannot listen: %w", err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(key.Leaf)
	return &serving{listener: transport.LimitListener(listener, maxConnections), tls: &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{key}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusted,
	}}, nil
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
