// Package etcd runs the embedded etcd: one member, in this process, reachable only over loopback.
//
// It is an ordinary etcd in all that matters: every commit is fsynced, history is compacted, the database has a quota.
// Other processes of the same machine may use it too (see Server.Endpoint); that is how replicas share it.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/klog/v2"
)

const (
	// DefaultQuota is the size at which the database refuses writes, in bytes.
	DefaultQuota = 8 << 30
	// DefaultCompactionRetention is how much history is kept for those who watch from an old revision. The API
	// server compacts as well, every five minutes; this bounds the history when none is connected.
	DefaultCompactionRetention = time.Hour
)

// Config says where the data is and how much of it there may be.
type Config struct {
	// Directory holds the data. It is created if missing. One process at a time may use it.
	Directory string
	// ClientPort is the loopback port to serve on. 0: the kernel chooses one at each start.
	ClientPort int
	// Quota is the size at which writes are refused, in bytes. 0: DefaultQuota.
	Quota int64
	// CompactionRetention is how long history is kept. 0: DefaultCompactionRetention.
	CompactionRetention time.Duration
}

// Server is a running etcd.
type Server struct {
	etcd    *embed.Etcd
	lock    *directoryLock
	closing *atomic.Bool
	failed  chan error
	joined  chan struct{}
}

// Start starts etcd and returns when it serves, or when ctx ends. If another process runs an etcd in the same
// directory, the error is an *InUseError. The caller must Close the server; the end of ctx does not stop it.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if err := os.MkdirAll(cfg.Directory, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the embedded etcd's directory: %w", err)
	}
	lock, err := lockDirectory(cfg.Directory)
	if err != nil {
		return nil, err
	}
	closing := &atomic.Bool{}
	e, err := embed.StartEtcd(embedConfig(ctx, cfg, closing))
	if err != nil {
		lock.release()
		return nil, fmt.Errorf("embedded etcd in %s does not start: %w", cfg.Directory, err)
	}
	s := &Server{etcd: e, lock: lock, closing: closing, failed: make(chan error, 1), joined: make(chan struct{})}
	go s.observe()
	select {
	case <-e.Server.ReadyNotify():
	case err := <-s.failed:
		s.Close()
		return nil, fmt.Errorf("embedded etcd in %s stopped while starting: %w", cfg.Directory, err)
	case <-ctx.Done():
		s.Close()
		return nil, fmt.Errorf("embedded etcd in %s was stopped while starting: %w", cfg.Directory, context.Cause(ctx))
	}
	if err := lock.publish(s.Endpoint()); err != nil {
		s.Close()
		return nil, err
	}
	klog.FromContext(ctx).Info("Embedded etcd serves", "endpoint", s.Endpoint(), "directory", cfg.Directory)
	return s, nil
}

// Endpoint is the URL that clients on this machine dial.
func (s *Server) Endpoint() string { return "http://" + s.etcd.Clients[0].Addr().String() }

// Failed yields one error if etcd stops by itself.
func (s *Server) Failed() <-chan error { return s.failed }

// Close stops etcd and returns when it has stopped and the directory is free. Requests in flight finish first; streams
// that clients keep open are cut after a few seconds, so close clients first.
func (s *Server) Close() {
	s.closing.Store(true)
	s.etcd.Close()
	<-s.joined
	s.lock.release()
}

// observe passes on the first error of etcd's listeners; their channel is closed when all of etcd has ended.
func (s *Server) observe() {
	defer close(s.joined)
	for {
		select {
		case err, ok := <-s.etcd.Err():
			if !ok {
				return
			}
			s.fail(err)
		case <-s.etcd.Server.StopNotify():
			s.fail(errors.New("the member stopped"))
			for range s.etcd.Err() {
			}
			return
		}
	}
}

func (s *Server) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// embedConfig is the configuration of a member that is alone and stays so: it has no peer listener, and since nobody
// can contest its election it need not wait long before it holds one.
func embedConfig(ctx context.Context, cfg Config, closing *atomic.Bool) *embed.Config {
	c := embed.NewConfig()
	c.Name = "regent"
	c.Dir = filepath.Join(cfg.Directory, "data")
	c.ListenPeerUrls = nil
	c.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:2380"}}
	client := url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(cfg.ClientPort))}
	c.ListenClientUrls = []url.URL{client}
	c.AdvertiseClientUrls = []url.URL{client}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.EnableGRPCGateway = false
	c.TickMs, c.ElectionMs = 20, 200
	c.QuotaBackendBytes = cfg.Quota
	if c.QuotaBackendBytes == 0 {
		c.QuotaBackendBytes = DefaultQuota
	}
	retention := cfg.CompactionRetention
	if retention == 0 {
		retention = DefaultCompactionRetention
	}
	c.AutoCompactionMode = embed.CompactorModePeriodic
	c.AutoCompactionRetention = retention.String()
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(newLogger(klog.FromContext(ctx).WithName("etcd"), closing))
	return c
}
