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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/etcd"
	"github.com/regent-project/regent/pkg/server/fetch"
	"github.com/regent-project/regent/pkg/server/pki"
)

// system is what dev runs beside the etcds: one shard, or an installation of several with fronts before them; and the
// balancer before the replicas of the one, or the fronts of the other.
type system struct {
	cfg             Config
	bundle          *pki.Bundle // of the first shard
	url, kubeconfig string
	out             *output
	fail            context.CancelCauseFunc
	deaf            *atomic.Bool  // there is no terminal, or its input has ended
	start           *start        // nil: it is no installation
	up              chan struct{} // closed once the system can be used

	balancer *balancer
	client   *http.Client // with the administrator's certificate
	shards   []*shard
	fronts   []*child
	members  []*member // all but the first shard
}

// newSystem opens the balancer, and writes the keys and the kubeconfig. It starts no process.
func newSystem(cfg Config, stores []*etcd.Server, out *output, fail context.CancelCauseFunc) (*system, error) {
	bundle, err := pki.Ensure(filepath.Join(cfg.RootDirectory, "pki"))
	if err != nil {
		return nil, err
	}
	s := &system{
		cfg: cfg, bundle: bundle, url: url(cfg.SecurePort), kubeconfig: filepath.Join(cfg.RootDirectory, "admin.kubeconfig"), out: out, fail: fail, deaf: &atomic.Bool{}, up: make(chan struct{}),
	}
	s.deaf.Store(cfg.Enters == nil)
	if len(stores) > 1 {
		s.start = &start{until: time.Now().Add(startPatience)}
	}
	s.addShards(stores)
	s.addFronts()
	if err := s.writeKubeconfig(); err != nil {
		return nil, err
	}
	transport, err := newAdminTransport(filepath.Join(cfg.RootDirectory, "pki"), bundle)
	if err != nil {
		return nil, err
	}
	s.client = &http.Client{Transport: transport}
	most, err := connections(len(stores))
	if err != nil {
		return nil, err
	}
	var backends []string
	for _, c := range s.entrances() {
		backends = append(backends, strings.TrimPrefix(c.url, "https://"))
	}
	s.balancer, err = newBalancer(address(cfg.SecurePort), most, out.say, backends...)
	return s, err
}

func (s *system) addShards(stores []*etcd.Server) {
	for n, store := range stores {
		if n == 0 {
			s.shards = append(s.shards, s.newShard(n, store.Transport()))
			continue
		}
		file := filepath.Join(s.cfg.RootDirectory, shardName(n)+".membership")
		shard := s.newShard(n, store.Transport(), "--membership="+file)
		s.shards = append(s.shards, shard)
		s.members = append(s.members, &member{name: shard.name, file: file, urls: shard.urls(), children: shard.children})
	}
}

func (s *system) addFronts() {
	for n := range s.cfg.fronts() {
		name, port := fmt.Sprintf("front-%d", n), s.cfg.front(n)
		file := filepath.Join(s.cfg.RootDirectory, name+".membership")
		c := s.newChild(name, url(port), "front", "--membership="+file, fmt.Sprintf("--secure-port=%d", port),
			"--snapshot-file="+filepath.Join(s.cfg.RootDirectory, name+".snapshot"), "--shutdown-delay-duration="+balancerNotices.String())
		s.fronts = append(s.fronts, c)
		s.members = append(s.members, &member{name: name, file: file, children: []*child{c}})
	}
}

func (s *system) newChild(name, url string, args ...string) *child {
	return &child{
		name: name, url: url, args: args, out: s.out, fail: s.fail, again: make(chan struct{}, 1), deaf: s.deaf, start: s.start,
		log: filepath.Join(s.logs(), strings.ReplaceAll(name, "/", "-")+".log"),
		ready: func(ctx context.Context) error {
			return s.until(ctx, func() bool { return s.answers(ctx, url+"/readyz") })
		},
	}
}

func (s *system) logs() string { return s.cfg.logs() }

// entrances are what the balancer leads to.
func (s *system) entrances() []*child {
	if len(s.fronts) > 0 {
		return s.fronts
	}
	return s.shards[0].children
}

// children are all processes.
func (s *system) children() []*child {
	all := append([]*child{}, s.fronts...)
	for _, shard := range s.shards {
		all = append(all, shard.children...)
	}
	return all
}

func (s *system) isInstallation() bool { return len(s.shards) > 1 }

// writeKubeconfig writes the administrator's kubeconfig. Fronts have no system clusters: it leads to each shard's
// through them.
func (s *system) writeKubeconfig() error {
	contexts := map[string]string{}
	for _, shard := range s.shards {
		for _, c := range shard.children {
			contexts[c.name] = c.url + clusters.RequestPath(clusters.Root)
		}
		if s.isInstallation() {
			contexts[shard.name+"/system:admin"] = s.ofShard(shard) + clusters.RequestPath(clusters.SystemAdmin)
		}
	}
	if s.isInstallation() {
		contexts[clusters.SystemAdmin.String()] = contexts[s.shards[0].name+"/system:admin"]
	}
	_, err := s.bundle.WriteKubeconfig(s.kubeconfig, pki.Kubeconfig{BaseURL: s.url, Contexts: contexts, Replace: true})
	return err
}

// ofShard returns the URL under which the fronts lead to one shard.
func (s *system) ofShard(shard *shard) string { return s.url + "/shards/" + shard.name }

// adminTLS returns the TLS configuration of the administrator.
func adminTLS(bundle *pki.Bundle) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(bundle.AdminCertPEM, bundle.AdminKeyPEM)
	if err != nil {
		return nil, fmt.Errorf("the admin's certificate is not usable: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle.CAPEM) {
		return nil, errors.New("the certificate authority is not usable")
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}, nil
}

// run runs all processes until ctx ends, and returns when they have stopped.
func (s *system) run(ctx context.Context) {
	var all sync.WaitGroup
	defer s.client.CloseIdleConnections()
	defer all.Wait()
	keep := func(ctx context.Context, children []*child) {
		for _, c := range children {
			all.Go(func() { c.keep(ctx) })
		}
	}
	keep(ctx, s.shards[0].children)
	if s.isInstallation() {
		all.Go(func() { s.join(ctx, keep) })
	}
	for _, shard := range s.shards {
		for _, c := range shard.children {
			all.Go(func() { s.follow(ctx, shard, c) })
		}
	}
	all.Go(func() { s.announce(ctx) })
	all.Go(func() { s.watch(ctx) })
	all.Go(func() { s.restart(ctx) })
}

// restart starts the processes that have ended again whenever the user asks for it, until ctx ends.
func (s *system) restart(ctx context.Context) {
	enters := s.cfg.Enters
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.cfg.Signals:
		case _, more := <-enters:
			if !more {
				s.deaf.Store(true)
				enters = nil
				continue
			}
		}
		for _, c := range s.children() {
			c.startAgain()
		}
	}
}

// announcePeriod is the pause between two looks whether the system can be used.
const announcePeriod = 200 * time.Millisecond

// announce shows the banner once the system can be used.
func (s *system) announce(ctx context.Context) {
	err := s.out.while(ctx, s.waitsFor(), func(ctx context.Context) error {
		return s.until(ctx, func() bool { return s.usable(ctx) })
	})
	if err != nil {
		return
	}
	if s.start != nil {
		s.start.up.Store(true)
	}
	s.out.block(s.banner(beside("kubectl")))
	close(s.up)
}

// waitsFor says what a start waits for.
func (s *system) waitsFor() string {
	if s.isInstallation() {
		return fmt.Sprintf("Waiting until %d shards are led, and %s answers", len(s.shards), s.url)
	}
	return fmt.Sprintf("Waiting until one of %d replicas leads, and %s answers", len(s.shards[0].children), s.url)
}

// until returns nil once something is so, or an error if ctx ends first.
func (s *system) until(ctx context.Context, so func() bool) error {
	tick := time.NewTicker(announcePeriod)
	defer tick.Stop()
	for !so() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}

// present are the shards that were not removed from the installation.
func (s *system) present() []*shard {
	return slices.DeleteFunc(slices.Clone(s.shards), func(one *shard) bool {
		return slices.ContainsFunc(s.members, func(m *member) bool { return m.name == one.name && m.out.Load() })
	})
}

// usable reports whether every shard is led and ready, and logical cluster root can be used.
func (s *system) usable(ctx context.Context) bool {
	for _, shard := range s.present() {
		if leader, _ := shard.leading(); leader == nil || s.isInstallation() && !s.answers(ctx, s.ofShard(shard)+"/readyz") {
			return false
		}
	}
	return s.answers(ctx, s.url+clusters.RequestPath(clusters.Root)+"/api/v1/namespaces/default")
}

// answers reports whether a GET of a URL succeeds.
func (s *system) answers(ctx context.Context, url string) bool {
	return fetch.Check(ctx, s.client.Do, url) == nil
}

// beside returns the file of that name beside this program, or just the name if there is none.
func beside(name string) string {
	if self, err := os.Executable(); err == nil {
		file := filepath.Join(filepath.Dir(self), name)
		if _, err := os.Stat(file); err == nil {
			return file
		}
	}
	return name
}
