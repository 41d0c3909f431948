// Package etcd runs the embedded etcd: one member, in this process. It listens on loopback only, and lets in only
// clients that can read a key file, which only the user who runs it can.
//
// Otherwise it is an ordinary etcd: every commit is fsynced, history is compacted, and the database has a quota. Other
// replicas of the same user may share it (see Server.Transport).
package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/server/pki"
)

const (
	// DefaultQuota is the size at which the database refuses writes, in bytes.
	DefaultQuota = 8 << 30
	// compactionRetention is how long history is kept for watches from an old revision. API servers compact too,
	// every five minutes. This bounds the history while none is connected.
	compactionRetention = time.Hour
	// progressInterval is how often a watch on which nothing happens is told the revision. Watches of what nobody
	// writes get a bookmark then; from etcd's own ten minutes on, their revision may be compacted before they learn
	// a newer one, and they end with 410 after a restart.
	progressInterval = 5 * time.Second
)

// Config says where the data is and how much of it there may be.
type Config struct {
	// Directory holds the data, and in pki/ the key of the clients. It is created if missing. Only one process may
	// use it at a time.
	Directory string
	// ClientPort is the loopback port to serve on. 0: any free port, a new one at each start.
	ClientPort int
	// Quota is the size at which writes are refused, in bytes. 0: DefaultQuota.
	Quota int64

	// connections limits the open connections, for tests. 0: as many as the file descriptors allow.
	connections int
	// roomPeriod is the constant, except in tests.
	roomPeriod time.Duration
}

// Server is a running etcd.
type Server struct {
	etcd      *embed.Etcd
	serving   *serving
	directory string
	lock      *directoryLock
	quota     int64
	stage     *atomic.Int32
	settle    *time.Timer // ends the start
	failed    chan error
	joined    chan struct{}
	// keepingRoom ends with stopKeepingRoom.
	keepingRoom     sync.WaitGroup
	stopKeepingRoom context.CancelFunc
}

// Start starts etcd and returns when it serves, or when ctx ends. If another process runs an etcd in the same
// directory, the error is an *InUseError. The end of ctx does not stop a started server: the caller must Close it.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if err := os.MkdirAll(cfg.Directory, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the embedded etcd's directory: %w", err)
	}
	lock, err := lockDirectory(cfg.Directory)
	if err != nil {
		return nil, err
	}
	s, err := open(ctx, cfg)
	if err != nil {
		lock.release()
		return nil, err
	}
	s.lock = lock
	s.stopKeepingRoom = func() {}
	if err := s.serve(ctx); err != nil {
		s.Close()
		return nil, err
	}
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stopKeepingRoom = stop
	s.keepingRoom.Go(func() { s.keepRoom(keeping, cmp.Or(cfg.roomPeriod, roomPeriod)) })
	klog.FromContext(ctx).Info("Embedded etcd serves", "endpoint", s.endpoint(), "directory", cfg.Directory)
	return s, nil
}

// open opens the listener and the data. Clients are not answered yet.
func open(ctx context.Context, cfg Config) (*Server, error) {
	cfg.Quota = cmp.Or(cfg.Quota, DefaultQuota)
	if err := discardUnbegun(ctx, dataOf(cfg.Directory)); err != nil {
		return nil, err
	}
	key, err := pki.EnsureMutual(keys(cfg.Directory))
	if err != nil {
		return nil, err
	}
	serving, err := listen(cfg.ClientPort, key, cmp.Or(cfg.connections, roomFor(descriptors())))
	if err != nil {
		return nil, err
	}
	s := &Server{serving: serving, directory: cfg.Directory, quota: cfg.Quota, stage: &atomic.Int32{}, failed: make(chan error, 1), joined: make(chan struct{})}
	if s.etcd, err = embed.StartEtcd(embedConfig(ctx, cfg, s.endpoint(), s.stage)); err != nil {
		serving.close()
		return nil, fmt.Errorf("embedded etcd in %s does not start: %w", cfg.Directory, err)
	}
	s.settle = time.AfterFunc(settled, func() { s.stage.CompareAndSwap(starting, running) })
	go s.observe()
	return s, nil
}

// serve answers clients once the member is ready.
func (s *Server) serve(ctx context.Context) error {
	select {
	case <-s.etcd.Server.ReadyNotify():
	case err := <-s.failed:
		return fmt.Errorf("embedded etcd in %s stopped while starting: %w", s.directory, err)
	case <-ctx.Done():
		return fmt.Errorf("embedded etcd in %s was stopped while starting: %w", s.directory, context.Cause(ctx))
	}
	s.serving.start(s.etcd.Server, s.fail)
	return s.lock.publish(s.endpoint())
}

// Transport returns how clients of the same user reach this etcd: its URL and the files to authenticate with.
func (s *Server) Transport() storagebackend.TransportConfig {
	return way(s.directory, s.endpoint())
}

// dataOf returns the directory of the data.
func dataOf(directory string) string { return filepath.Join(directory, "data") }

// keys returns the directory of the clients' key.
func keys(directory string) string { return filepath.Join(directory, "pki") }

func way(directory, endpoint string) storagebackend.TransportConfig {
	cert := filepath.Join(keys(directory), pki.MutualCertFile)
	return storagebackend.TransportConfig{
		ServerList: []string{endpoint}, TrustedCAFile: cert, CertFile: cert, KeyFile: filepath.Join(keys(directory), pki.MutualKeyFile),
	}
}

func (s *Server) endpoint() string { return "https://" + s.serving.listener.Addr().String() }

// Failed returns a channel that gets one error if etcd stops by itself.
func (s *Server) Failed() <-chan error { return s.failed }

// Close stops etcd and returns when it has stopped and the directory is free. Requests in flight finish first. Streams
// are cut after a few seconds, so close clients first.
func (s *Server) Close() {
	s.settle.Stop()
	s.stage.Store(closing)
	s.stopKeepingRoom()
	s.keepingRoom.Wait()
	s.serving.close()
	s.etcd.Close()
	<-s.joined
	s.lock.release()
}

// observe passes on the first error of etcd's listeners, and returns when all of etcd has ended.
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

const (
	// catchUpEntries is how many of the last writes etcd keeps in memory, beside a hundred, for followers that are
	// slow. There are none, and by default it is 5,000: as many megabytes, if somebody writes large objects.
	catchUpEntries = 1
	// snapshotCount is how many writes are read into memory at a start, at most, and are on the disk a second time.
	// By default it is 10,000.
	snapshotCount = 1000
)

// embedConfig returns the configuration of a member that stays alone: it has no peer listener and short election
// timeouts, because nobody contests its election. serving listens for its clients.
func embedConfig(ctx context.Context, cfg Config, endpoint string, stage *atomic.Int32) *embed.Config {
	c := embed.NewConfig()
	c.Name = "regent"
	c.Dir = dataOf(cfg.Directory)
	c.ListenPeerUrls = nil
	c.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:2380"}}
	c.ListenClientUrls = nil
	if u, err := url.Parse(endpoint); err == nil {
		c.AdvertiseClientUrls = []url.URL{*u}
	}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	// In a new directory, the cluster's id is made from this token. Replicas tell by the id whether they still talk
	// to the same etcd.
	c.InitialClusterToken = uuid.NewString()
	c.EnableGRPCGateway = false
	c.TickMs, c.ElectionMs = 20, 200
	c.QuotaBackendBytes = cfg.Quota
	c.SnapshotCatchUpEntries, c.SnapshotCount = catchUpEntries, snapshotCount
	c.AutoCompactionMode = embed.CompactorModePeriodic
	c.AutoCompactionRetention = compactionRetention.String()
	c.WatchProgressNotifyInterval = progressInterval
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(newLogger(klog.FromContext(ctx).WithName("etcd"), stage))
	return c
}
