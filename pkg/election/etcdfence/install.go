package etcdfence

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/fence"
)

// Config says what Install guards. Etcd is required, and one of Stored and Leases.
type Config struct {
	// Etcd are the server's options of etcd, as they are applied. What has another etcd (--etcd-servers-overrides)
	// is not held.
	Etcd *options.EtcdOptions
	// Stored says how the server stores what: server.Config.RESTOptionsGetter, once Etcd was applied to that
	// configuration.
	Stored generic.RESTOptionsGetter
	// Clusters says that the server has logical clusters. Tokens must then name one, and otherwise must not.
	Clusters bool
	// Leases is where the Leases are. Nil: where Stored says. It is for a server that shares its etcd with the one
	// whose Leases it uses.
	Leases *Leases

	// MustCarry reports whether writes of a user must carry a token; such writes without one are refused. It is for
	// the users as whom leaders write; in the server itself that is user.APIServerUser, by the loopback client. A
	// request without a user, as in a server without an authenticator, need not carry one. Creations, updates and
	// deletions of Leases and LeaseCandidates need not either: a process becomes a leader by these. So Leases that
	// are a leader's product are held only if it sends its token. Other things that its user writes before it leads
	// must be there, or be made as another user, such as the Secret of leader.Config.SecretName. Nil: no user must.
	// A token that is there is checked, whoever sends it.
	MustCarry func(user.Info) bool
	// MayGet reports whether the user in ctx may get the Lease of a token: they are told what it shows when their
	// write is refused. Nil: nobody is told.
	MayGet func(ctx context.Context, lease fence.Token) bool
}

// Install guards all stores of that etcd that are made from now on, and returns the guard. It fails if the
// configuration is incomplete, or if stores of this k8s.io/apiserver cannot be guarded. What it knows not to hold it
// logs.
//
// Several servers in a process can each have a guard, if they have different etcds, or prefixes none of which is below
// another.
func Install(ctx context.Context, config Config) (*Guard, error) {
	if config.Etcd == nil || len(config.Etcd.StorageConfig.Transport.ServerList) == 0 {
		return nil, errors.New("etcdfence.Config.Etcd has no servers: give the EtcdOptions that the server's configuration is made of")
	}
	g := New()
	if config.Leases == nil {
		if config.Stored == nil {
			return nil, errors.New("etcdfence.Config.Stored is nil: give server.Config.RESTOptionsGetter, which is set once the options of etcd were applied, or set Leases")
		}
		leases, err := LeasesOf(config.Stored, config.Clusters)
		if err != nil {
			return nil, fmt.Errorf("etcdfence.Config.Stored: %w", err)
		}
		config.Leases = &leases
	}
	g.SetLeases(*config.Leases)
	g.config = config
	g.endpoints = sorted(config.Etcd.StorageConfig.Transport.ServerList)
	g.prefix = path.Join("/", config.Etcd.StorageConfig.Prefix) + "/"
	if err := probe(ctx); err != nil {
		return nil, err
	}
	if err := installed.add(g); err != nil {
		return nil, err
	}
	if apart := g.NotHeld(); len(apart) > 0 {
		klog.FromContext(ctx).Info("Some writes are not held to fencing tokens in their transactions, because they do not go to the etcd that has the Leases: a token is checked before them only",
			"apart", apart, "leases", g.endpoints)
	}
	return g, nil
}

// NotHeld returns what is not held in its transaction, in words: resources that have an etcd of their own, and any
// other etcd for which a store was made. Tokens of such writes are read and compared just before them, which a leader
// that is paused in between gets past. Of what other servers store, behind an aggregator or a proxy, it knows nothing.
func (g *Guard) NotHeld() []string {
	var out []string
	if g.config.Etcd != nil {
		for _, override := range g.config.Etcd.EtcdServersOverrides {
			if resource, servers, ok := strings.Cut(override, "#"); ok && !slices.Equal(sorted(strings.Split(servers, ";")), g.endpoints) {
				out = append(out, "resource "+resource+" in etcd at "+servers)
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return append(out, g.apart...)
}

// installed has the guards of this process.
var installed registry

type registry struct {
	mu     sync.Mutex
	guards []*Guard
}

func (r *registry) add(g *Guard) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.guards {
		if slices.Equal(other.endpoints, g.endpoints) && (strings.HasPrefix(other.prefix, g.prefix) || strings.HasPrefix(g.prefix, other.prefix)) {
			return fmt.Errorf("a guard is installed already for etcd at %v below %s: share it", g.endpoints, other.prefix)
		}
	}
	r.guards = append(r.guards, g)
	return nil
}

// Uninstall has stores that are made from now on go without this guard. Those that are there stay guarded. It is for
// tests, which start many servers.
func (g *Guard) Uninstall() {
	installed.mu.Lock()
	defer installed.mu.Unlock()
	installed.guards = slices.DeleteFunc(installed.guards, func(other *Guard) bool { return other == g })
}

// guard puts guards into the client of a store that is being made. It is called before the store uses the client.
func (r *registry) guard(ctx context.Context, store *kubernetes.Client) {
	endpoints := sorted(store.Endpoints())
	r.mu.Lock()
	defer r.mu.Unlock()
	held := false
	for _, g := range r.guards {
		if slices.Equal(g.endpoints, endpoints) {
			held = true
			store.Kubernetes = g.attach(store)
		}
	}
	if held || len(r.guards) == 0 {
		return
	}
	for _, g := range r.guards {
		g.noteApart(ctx, endpoints)
	}
	if len(r.guards) == 1 { // of several, nothing says which one's server it is
		store.Kubernetes = &apart{store.Kubernetes, r.guards[0]}
	}
}

// attach returns what a store of this guard's etcd writes with. Keys below other prefixes are not this guard's.
func (g *Guard) attach(store *kubernetes.Client) kubernetes.Interface {
	for next := store.Kubernetes; ; {
		c, ok := next.(*client)
		if !ok {
			break
		}
		if c.guard == g { // a client that several stores share
			return store.Kubernetes
		}
		next = c.Interface
	}
	c := g.Client(store.Kubernetes, store.Client).(*client)
	c.only = g.prefix
	return c
}

// noteApart takes in that a store is in another etcd.
func (g *Guard) noteApart(ctx context.Context, endpoints []string) {
	said := "etcd at " + strings.Join(endpoints, ";")
	g.mu.Lock()
	known := slices.Contains(g.apart, said)
	if !known {
		g.apart = append(g.apart, said)
	}
	g.mu.Unlock()
	if !known {
		klog.FromContext(ctx).Info("What is stored in this etcd is not held to fencing tokens in its transactions, because the Leases are in another one: a token is checked before the write only",
			"etcd", endpoints, "leases", g.endpoints)
	}
}

func sorted(endpoints []string) []string {
	out := slices.Clone(endpoints)
	slices.Sort(out)
	return slices.Compact(out)
}

// apart is the client of an etcd that has no Leases.
type apart struct {
	kubernetes.Interface
	guard *Guard
}

func (a *apart) OptimisticPut(ctx context.Context, key string, value []byte, expected int64, opts kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	if err := a.guard.Check(ctx); err != nil {
		return kubernetes.PutResponse{}, err
	}
	return a.Interface.OptimisticPut(ctx, key, value, expected, opts)
}

func (a *apart) OptimisticDelete(ctx context.Context, key string, expected int64, opts kubernetes.DeleteOptions) (kubernetes.DeleteResponse, error) {
	if err := a.guard.Check(ctx); err != nil {
		return kubernetes.DeleteResponse{}, err
	}
	return a.Interface.OptimisticDelete(ctx, key, expected, opts)
}

var _ kubernetes.Interface = (*apart)(nil)
