package regenttest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
)

// Server is what Start starts: a shard, or an installation of several. It may be used by several tests at a time.
type Server struct {
	// Shard is the root shard: all there is, unless Shards asks for more.
	*Shard
	// Shards are all shards, the root shard first.
	Shards []*Shard
	// Front leads clients to the shards. nil: there is only one.
	Front *Process

	options   options
	program   string
	owner     testing.TB // with which it ends; nil: with the process
	directory string     // with the shards' directories
	logs      string     // directory
	entrance  *door
	frontWay  atomic.Pointer[link]
	open      atomic.Bool   // the entrance leads in
	next      atomic.Uint64 // the replica to which it leads next

	processes []*Process
	links     []*link
	doors     []*door

	mu     sync.Mutex
	client *http.Client // the administrator's; nil until the keys are there
	tls    rest.TLSClientConfig
}

// start starts a server whose files are in one directory, and logs in another. It returns when it can be used. If it
// cannot be started nothing of it runs any more.
func start(ctx context.Context, o options, program, directory, logs string) (s *Server, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("that took more than %v", patience))
	defer cancel()
	s = &Server{options: o, program: program, directory: directory, logs: logs}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.entrance, err = s.openDoor(s.lead); err != nil {
		return s, err
	}
	for n := range o.shards {
		name := "root"
		if n > 0 {
			name = fmt.Sprintf("shard-%d", n)
		}
		shard, err := s.newShard(name)
		if err != nil {
			return s, err
		}
		s.Shards = append(s.Shards, shard)
	}
	s.Shard = s.Shards[0]
	// The replicas start beside their etcd, and wait for it.
	starts := []func() error{func() error { return s.startReplicas(ctx) }}
	for _, one := range s.Shards {
		starts = append(starts, func() error { return one.Etcd.serve(ctx) })
	}
	if err := all(starts, func(start func() error) error { return start() }); err != nil {
		return s, err
	}
	if err := s.install(ctx); err != nil {
		return s, err
	}
	if err := all(s.Shards, func(one *Shard) error { _, err := one.leader(ctx); return err }); err != nil {
		return s, err
	}
	s.open.Store(true)
	return s, until(ctx, "logical cluster root can be used", func(ctx context.Context) error {
		_, err := s.get(ctx, s.url()+"/clusters/root/api/v1/namespaces/default")
		return err
	})
}

// stop ends all that runs, and returns when it has ended. The error says what had ended by itself.
func (s *Server) stop() error {
	var surprises []error
	for _, p := range s.processes {
		surprises = append(surprises, p.stop())
	}
	for _, l := range s.links {
		l.close()
	}
	for _, d := range s.doors {
		d.close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		s.client.CloseIdleConnections()
	}
	return errors.Join(surprises...)
}

// lead leads a client that comes in: to the front, or to the replicas in turn. If none answers, to one from which
// nothing comes, because it is paused or cut off: so clients see what they would without a balancer.
func (s *Server) lead() (l *link, balanced bool) {
	if !s.open.Load() {
		return nil, false
	}
	if way := s.frontWay.Load(); way != nil {
		return way, false
	}
	n := len(s.Replicas)
	first, silent := int(s.next.Add(1)%uint64(n)), (*link)(nil) //nolint:gosec // there are at most 16
	for i := range n {
		switch r := s.Replicas[(first+i)%n]; {
		case r.answers():
			return r.way, n > 1
		case r.runs():
			silent = r.way
		}
	}
	return silent, n > 1
}

// url is where clients reach it.
func (s *Server) url() string { return "https://" + s.entrance.address() }

func (s *Server) openDoor(lead func() (*link, bool)) (*door, error) {
	d, err := openDoor(lead)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on 127.0.0.1: %w", err)
	}
	s.doors = append(s.doors, d)
	return d, nil
}

func (s *Server) newProcess(name, portFlag string, args ...string) *Process {
	p := &Process{name: name, program: s.program, portFlag: portFlag, args: args, log: filepath.Join(s.logs, name+".log")}
	s.processes = append(s.processes, p)
	return p
}

// pki is the directory with the keys of the installation.
func (s *Server) pki() string { return filepath.Join(s.directory, "root", "pki") }

// admin returns a client with the administrator's credentials, once a replica has made them.
func (s *Server) admin() (*http.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		return s.client, nil
	}
	var of rest.TLSClientConfig
	for file, content := range map[string]*[]byte{"ca.crt": &of.CAData, "admin.crt": &of.CertData, "admin.key": &of.KeyData} {
		var err error
		if *content, err = os.ReadFile(filepath.Join(s.pki(), file)); err != nil {
			return nil, err
		}
	}
	pair, err := tls.X509KeyPair(of.CertData, of.KeyData)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(of.CAData)
	// no connection is kept: one to a replica that is paused would hold up the next question
	s.client = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true,
	}}
	s.tls = of
	return s.client, nil
}

// config is the administrator's.
func (s *Server) config(server, cluster string) *rest.Config {
	return &rest.Config{Host: server + "/clusters/" + cluster, QPS: -1, TLSClientConfig: s.tls}
}

// all does something for each of some, beside each other, and returns what went wrong.
func all[T any](of []T, do func(T) error) error {
	errs := make([]error, len(of))
	var running sync.WaitGroup
	for n, one := range of {
		running.Go(func() { errs[n] = do(one) })
	}
	running.Wait()
	return errors.Join(errs...)
}
