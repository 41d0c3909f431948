package dev

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/regent-project/regent/pkg/server/pki"
)

// shard is one shard's front and replicas.
type shard struct {
	name, url, kubeconfig string

	front    *front
	client   *http.Client // with the admin's certificate
	children []*child
	out      *output
	fail     context.CancelCauseFunc

	mu     sync.Mutex
	leader *child
	epoch  int
}

// newShard opens the front of a shard and writes the shard's keys and kubeconfig. It starts no replica.
func newShard(cfg Config, index int, etcd storagebackend.TransportConfig, out *output, deaf *atomic.Bool, fail context.CancelCauseFunc) (*shard, error) {
	directory := cfg.shardDirectory(index)
	bundle, err := pki.Ensure(filepath.Join(directory, "pki"))
	if err != nil {
		return nil, err
	}
	s := &shard{name: shardName(index), url: url(cfg.front(index)), kubeconfig: filepath.Join(directory, "admin.kubeconfig"), out: out, fail: fail}
	direct := map[string]string{}
	var backends []string
	for i := range cfg.Replicas {
		name, port := fmt.Sprintf("replica-%d", i), cfg.replica(index, i)
		direct[name] = url(port)
		backends = append(backends, address(port))
		if index > 0 {
			name = s.name + "/" + name
		}
		s.children = append(s.children, &child{
			name: name, url: url(port), out: out, leads: s.leads, again: make(chan struct{}, 1), deaf: deaf,
			args: append([]string{
				"start",
				"--root-directory=" + directory,
				"--shard-name=" + s.name,
				"--secure-port=" + fmt.Sprint(port),
				"--shard-base-url=" + s.url,
				"--etcd-servers=" + strings.Join(etcd.ServerList, ","),
				"--etcd-cafile=" + etcd.TrustedCAFile,
				"--etcd-certfile=" + etcd.CertFile,
				"--etcd-keyfile=" + etcd.KeyFile,
				"--etcd-prefix=" + etcdPrefix(index),
				"--enable-leader-election",
				"--shutdown-delay-duration=" + frontNotices.String(),
			}, cfg.Start...),
		})
	}
	if _, err := bundle.WriteKubeconfig(s.kubeconfig, pki.Kubeconfig{BaseURL: s.url, Direct: direct, Replace: true}); err != nil {
		return nil, err
	}
	config, err := adminTLS(bundle)
	if err != nil {
		return nil, err
	}
	s.client = newClient(config)
	most, err := connections(cfg.Shards)
	if err != nil {
		return nil, err
	}
	if s.front, err = newFront(address(cfg.front(index)), most, out.say, backends...); err != nil {
		return nil, err
	}
	return s, nil
}

// close closes what newShard opened.
func (s *shard) close() { _ = s.front.listener.Close() }

// adminTLS returns the TLS configuration of the shard's admin.
func adminTLS(bundle *pki.Bundle) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(bundle.AdminCertPEM, bundle.AdminKeyPEM)
	if err != nil {
		return nil, fmt.Errorf("the admin's certificate is not usable: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle.CAPEM) {
		return nil, errors.New("the shard's certificate authority is not usable")
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}, nil
}

// run runs the replicas until ctx ends, and returns when they have stopped.
func (s *shard) run(ctx context.Context) {
	var all sync.WaitGroup
	defer s.client.CloseIdleConnections()
	defer all.Wait()
	for _, c := range s.children {
		all.Go(func() { s.keep(ctx, c) })
	}
	all.Go(func() { s.announce(ctx) })
}

// keep starts the replica's process, and starts it again on each request after it has ended, until ctx ends.
func (s *shard) keep(ctx context.Context, c *child) {
	for ctx.Err() == nil {
		state, err := c.run(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.fail(&fault{err})
			return
		case state.ExitCode() == exitUsage:
			s.fail(&fault{fmt.Errorf("%s was given an invalid flag, its last line says which: %w", c.name, ErrUsage)})
			return
		}
		s.out.say("%s (pid %d) has ended: %v. %s", c.name, state.Pid(), state, c.howToStart())
		select {
		case <-ctx.Done():
		case <-c.again:
		}
	}
}

// leads records that a replica leads. It is called when the replica's log says so.
func (s *shard) leads(c *child, epoch int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leader, s.epoch = c, epoch
	text := fmt.Sprintf("%s leads shard %s, epoch %d", c.name, s.name, epoch)
	if pid := c.running(); pid != 0 { // 0: the process has ended since
		text += fmt.Sprintf(". To kill it: kill -9 %d", pid)
	}
	s.out.say("%s", text)
}

// announcePeriod is the pause between two requests to root, until root answers.
const announcePeriod = 200 * time.Millisecond

// announce shows the banner once the shard can be used.
func (s *shard) announce(ctx context.Context) {
	tick := time.NewTicker(announcePeriod)
	defer tick.Stop()
	for !s.answers(ctx) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	s.out.block(s.banner(kubectl()))
}

// answers reports whether a replica leads and logical cluster root can be used.
func (s *shard) answers(ctx context.Context) bool {
	s.mu.Lock()
	led := s.leader != nil
	s.mu.Unlock()
	if !led {
		return false
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/clusters/root/api/v1/namespaces/default", nil)
	if err != nil {
		return false
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// kubectl returns the file beside this program, or just the name if there is none.
func kubectl() string {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "kubectl")
		if _, err := os.Stat(beside); err == nil {
			return beside
		}
	}
	return "kubectl"
}
