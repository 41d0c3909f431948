package server

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/metrics"
	"github.com/regent-project/regent/pkg/server/connections"
	"github.com/regent-project/regent/pkg/server/edge"
	"github.com/regent-project/regent/pkg/server/identity"
	"github.com/regent-project/regent/pkg/server/keys"
	"github.com/regent-project/regent/pkg/server/loopback"
	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/pkg/server/tracing"
)

// Files and directories below the root directory.
const (
	pkiDirectory      = "pki"
	kubeconfigFile    = "admin.kubeconfig"
	replicasDirectory = "replicas"
)

// Server is one replica.
type Server struct {
	cfg Config
	// name is the replica's, and instance that of this process.
	name, instance string

	keys     *keys.Keys
	clientCA dynamiccertificates.CAContentProvider
	// furtherCA is the part of clientCA that the operator has given; nil: none.
	furtherCA dynamiccertificates.CAContentProvider
	// identity says who asks, and what they may do.
	identity *identity.Identity
	generic  *genericapiserver.Config
	// connections are those that generic accepts.
	connections *connections.Listener
	// farewell has clients leave before the listener closes.
	farewell connections.Farewell
	// rootCA is what the controllers publish in each namespace. Empty: nothing.
	rootCA string
	// tracing sends spans to a collector. Nil: nobody wants them.
	tracing *tracing.Provider
	// api answers this process's own requests.
	api loopback.Server
}

// New makes a replica: its keys, its kubeconfig and its listener. The listener accepts connections as soon as New
// returns; they are answered once Run serves. New does not touch etcd. Run closes what New opened.
func New(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.ShutdownTimeout == 0 {
		cfg.ShutdownTimeout = cfg.electionEndTimeout() + shutdownAllowance + cfg.ShutdownDelay
	}
	if cfg.Limits.RequestTimeout == 0 {
		cfg.Limits.RequestTimeout = edge.DefaultRequestTimeout
	}
	held, err := openKeys(cfg)
	if err != nil {
		return nil, err
	}
	edge.BoundRequestMetrics()
	if err := metrics.Register(legacyregistry.Registerer()); err != nil {
		return nil, err
	}
	cfg.Replica = cmp.Or(cfg.Replica, replicaName(os.Hostname, cfg.Serving.BindPort))
	s := &Server{cfg: cfg, name: cfg.Replica, instance: cfg.Replica + "_" + uuid.NewString()[:8], keys: held}
	if s.rootCA, err = cfg.ServiceAccounts.ReadRootCA(held.Bundle().CAPEM); err != nil {
		return nil, err
	}
	if err := s.writeKubeconfig(ctx); err != nil {
		return nil, err
	}
	if err := s.certify(); err != nil {
		return nil, err
	}
	if s.generic, err = s.newGenericConfig(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// openKeys returns the shard's keys. If there are none, those of its membership are written first, or it makes its own.
func openKeys(cfg Config) (*keys.Keys, error) {
	directory := filepath.Join(cfg.RootDirectory, pkiDirectory)
	if cfg.Membership != nil {
		if err := pki.Join(directory, cfg.Membership); err != nil {
			return nil, err
		}
	}
	return keys.Open(directory, cfg.Shard, cfg.Membership != nil)
}

// Run serves until ctx ends. Then it ends the term, which releases its lease while the listener is still open, lets
// requests in flight finish, and gives watches a few seconds. It returns when everything has ended, with nil if ctx was
// the reason. If something still runs at the shutdown timeout, Run returns a *LateError, and the process should exit.
func (s *Server) Run(ctx context.Context) error {
	log := klog.FromContext(ctx).WithValues("shard", s.cfg.Shard, "replica", s.name)
	r := newRun(s, klog.NewContext(ctx, log))
	result := make(chan error, 1)
	go func() { result <- r.all() }() //nolint:contextcheck // what ends last, such as traces, ends by its own timeout
	select {
	case err := <-result:
		return err
	case <-r.ctx.Done():
	}
	select {
	case err := <-result:
		return err
	case <-time.After(s.cfg.ShutdownTimeout):
		return errors.Join(&LateError{Timeout: s.cfg.ShutdownTimeout, Late: r.running()}, r.fault())
	}
}

// writeKubeconfig writes admin.kubeconfig, and logs if an existing file that it keeps names another shard URL.
func (s *Server) writeKubeconfig(ctx context.Context) error {
	if s.cfg.Membership != nil {
		return nil // the root shard's leads to all shards
	}
	name := filepath.Join(s.cfg.RootDirectory, kubeconfigFile)
	baseURL, err := s.keys.Bundle().WriteKubeconfig(name, pki.Kubeconfig{BaseURL: s.cfg.BaseURL, Replace: s.cfg.FixedBaseURL})
	if err != nil {
		return err
	}
	if baseURL != s.cfg.BaseURL {
		klog.FromContext(ctx).Info("The admin's kubeconfig was made for another URL and is kept: give --shard-base-url to have it rewritten",
			"file", name, "names", baseURL, "shard-base-url", s.cfg.BaseURL)
	}
	return nil
}

// certify gives the listener a certificate signed by the shard's authority, unless the operator has given one.
func (s *Server) certify() error {
	pair := &s.cfg.Serving.ServerCert
	if pair.CertKey.CertFile != "" || pair.GeneratedCert != nil {
		return nil
	}
	shown, err := s.keys.ServeAs(s.servingNames())
	if err != nil {
		return err
	}
	pair.GeneratedCert = shown
	return nil
}

// servingNames returns the names and addresses under which clients and peers reach this replica.
func (s *Server) servingNames() (names []string, addresses []net.IP) {
	hosts := []string{"localhost", "127.0.0.1", "::1", s.cfg.Host}
	if u, err := url.Parse(s.cfg.BaseURL); err == nil {
		hosts = append(hosts, u.Hostname())
	}
	for _, ip := range []net.IP{s.cfg.Advertise, s.cfg.Serving.BindAddress} {
		if ip != nil && !ip.IsUnspecified() {
			hosts = append(hosts, ip.String())
		}
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			addresses = append(addresses, ip)
		} else if host != "" {
			names = append(names, host)
		}
	}
	return names, addresses
}

// replicaName returns the name of a replica to which nobody has given one: <host>-<port>, which stays as long as these
// do. No name of a host is a reason not to start: letters become small, whatever else may not be in a name becomes a
// dash, its end is cut off if it is too long, and a host without a name is called replica.
func replicaName(hostname func() (string, error), port int) string {
	host, _ := hostname() // without one there is none
	host = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, strings.ToLower(host))
	labels := strings.FieldsFunc(host, func(r rune) bool { return r == '.' })
	for n, label := range labels {
		labels[n] = strings.Trim(label, "-")
	}
	host = strings.Join(slices.DeleteFunc(labels, func(label string) bool { return label == "" }), ".")
	suffix := "-" + strconv.Itoa(port)
	host = host[:min(len(host), LongestReplica-len(suffix))]
	return cmp.Or(strings.TrimRight(host, "-."), "replica") + suffix
}

// LongestReplica is how long the name of a replica may be, in bytes.
const LongestReplica = 63
