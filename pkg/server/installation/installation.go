// Package installation is what an administrator does with the shards of an installation: regent shard. The root shard says who is a member,
// in cluster root; every other shard is asked for what it has.
package installation

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/pki"
)

// Admin acts with an administrator's credentials.
type Admin struct {
	config  *rest.Config
	clients controllers.Clients // of the root shard
}

// New returns an Admin. config must lead to the root shard, or to a front, to any logical cluster.
func New(config *rest.Config) (*Admin, error) {
	config = rest.CopyConfig(config)
	config.Host, _, _ = strings.Cut(config.Host, "/clusters/")
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("cannot use the kubeconfig: %w", err)
	}
	a := &Admin{config: config}
	a.clients, err = clientsOf(config, client)
	return a, err
}

func clientsOf(config *rest.Config, client *http.Client) (controllers.Clients, error) {
	return controllers.NewClients(&rest.Config{Host: config.Host, QPS: -1}, &http.Client{Transport: clusters.Transport(client.Transport)})
}

// Addition is a new shard, or one that gets a new membership.
type Addition struct {
	Name string
	// Replicas are the URLs of the shard's replicas, as other shards and fronts reach them.
	Replicas []string
	// Labels are what Workspaces select shards by.
	Labels map[string]string
	// Renew gives a shard that is a member a new membership. The old one is worth nothing any more.
	Renew bool
}

// Add makes a shard a member, and returns the membership with which its replicas join. The keys of the installation's authority are in bundle.
func (a *Admin) Add(ctx context.Context, bundle *pki.Bundle, add Addition) (*pki.Membership, error) {
	root, err := a.root(ctx)
	if err != nil {
		return nil, err
	}
	membership, err := bundle.NewMembership(pki.Member{Kind: pki.KindShard, Name: add.Name}, pki.RootShard{Name: root.Name, URLs: clusters.ReplicasOf(root)})
	if err != nil {
		return nil, err
	}
	authority, err := a.accept(bundle, membership)
	if err != nil {
		return nil, err
	}
	if add.Renew {
		return membership, a.change(ctx, add.Name, func(s *corev1alpha1.Shard) error {
			if s.Name == root.Name {
				return fmt.Errorf("%s is the root shard, which needs no membership", s.Name)
			}
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, clusters.AuthorityAnnotation, authority.Fingerprint())
			setReplicas(s, add.Replicas)
			return nil
		})
	}
	if len(add.Replicas) == 0 {
		return nil, errors.New("give the URLs of the shard's replicas, as --replica=https://<host>:<port>, once for each")
	}
	shard := &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{
		Name: add.Name, Labels: add.Labels, Annotations: map[string]string{clusters.AuthorityAnnotation: authority.Fingerprint()},
	}}
	setReplicas(shard, add.Replicas)
	_, err = a.clients.Shards.Create(inRoot(ctx), shard, metav1.CreateOptions{FieldManager: "regent-shard"})
	if apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("there is a shard %s, or there was one: choose another name, or give --renew for a new membership of the same shard", add.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make shard %s a member: %w", add.Name, err)
	}
	return membership, nil
}

// AddFront makes a front a member, and returns its membership. A front that is a member gets a new one, and the old one is worth nothing any
// more. The keys of the installation's authority are in bundle.
func (a *Admin) AddFront(ctx context.Context, bundle *pki.Bundle, name string) (*pki.Membership, error) {
	if faults := validation.IsDNS1123Label(name); len(faults) > 0 {
		return nil, fmt.Errorf("front %q: the name is no DNS label: %s", name, strings.Join(faults, "; "))
	}
	root, err := a.root(ctx)
	if err != nil {
		return nil, err
	}
	membership, err := bundle.NewMembership(pki.Member{Kind: pki.KindFront, Name: name}, pki.RootShard{Name: root.Name, URLs: clusters.ReplicasOf(root)})
	if err != nil {
		return nil, err
	}
	authority, err := a.accept(bundle, membership)
	if err != nil {
		return nil, err
	}
	return membership, a.change(ctx, root.Name, func(s *corev1alpha1.Shard) error {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, clusters.FrontAnnotationPrefix+name, authority.Fingerprint())
		return nil
	})
}

// RemoveFront makes all shards refuse a front.
func (a *Admin) RemoveFront(ctx context.Context, name string) error {
	root, err := a.root(ctx)
	if err != nil {
		return err
	}
	return a.change(ctx, root.Name, func(s *corev1alpha1.Shard) error {
		if s.Annotations[clusters.FrontAnnotationPrefix+name] == "" {
			return fmt.Errorf("there is no front %s", name)
		}
		delete(s.Annotations, clusters.FrontAnnotationPrefix+name)
		return nil
	})
}

// accept returns the authority of a membership. It refuses keys of another installation than that to which the kubeconfig leads.
func (a *Admin) accept(bundle *pki.Bundle, membership *pki.Membership) (*pki.Authority, error) {
	config := rest.CopyConfig(a.config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("cannot use the kubeconfig: %w", err)
	}
	if ca := bytes.TrimSpace(config.CAData); len(ca) > 0 && !bytes.Equal(ca, bytes.TrimSpace(bundle.CAPEM)) {
		return nil, errors.New("the certificate authority in --pki-directory is another one than that of the shard to which the kubeconfig leads: give the directory pki/ of that shard")
	}
	return membership.Authority()
}

// Set changes the URLs of a shard's replicas, and its labels. A label with an empty value is removed.
func (a *Admin) Set(ctx context.Context, name string, replicas []string, labels map[string]string) error {
	return a.change(ctx, name, func(s *corev1alpha1.Shard) error {
		setReplicas(s, replicas)
		for key, value := range labels {
			if value == "" {
				delete(s.Labels, key)
			} else {
				metav1.SetMetaDataLabel(&s.ObjectMeta, key, value)
			}
		}
		return nil
	})
}

func setReplicas(s *corev1alpha1.Shard, replicas []string) {
	if len(replicas) > 0 {
		s.Spec.BaseURL = replicas[0]
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, clusters.ReplicasAnnotation, strings.Join(replicas, ","))
	}
}

// Cordon makes a shard take no new logical clusters, or take them again.
func (a *Admin) Cordon(ctx context.Context, name string, cordoned bool) error {
	return a.change(ctx, name, func(s *corev1alpha1.Shard) error {
		if cordoned {
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, clusters.CordonAnnotation, "true")
		} else {
			delete(s.Annotations, clusters.CordonAnnotation)
		}
		return nil
	})
}

// Remove takes a shard out of the installation. It cordons the shard first, and refuses to go on while the shard has logical clusters, or Workspaces
// are assigned to it. The shard's name is not used again.
func (a *Admin) Remove(ctx context.Context, name string) error {
	root, err := a.root(ctx)
	if err != nil {
		return err
	}
	if name == root.Name {
		return fmt.Errorf("%s is the root shard: without it there is no installation", name)
	}
	if err := a.Cordon(ctx, name, true); err != nil {
		return err
	}
	all, err := a.members(ctx)
	if err != nil {
		return err
	}
	if err := a.awaitCordon(ctx, all, name); err != nil {
		return err
	}
	var left []string
	for _, shard := range all {
		clients, err := a.of(shard)
		if err != nil {
			return err
		}
		held, err := heldBy(ctx, clients, shard, name)
		if err != nil {
			return fmt.Errorf("shard %s does not say what it has, and so %s may still have clusters: %w", shard.Name, name, err)
		}
		left = append(left, held...)
	}
	if len(left) > 0 {
		return fmt.Errorf("%s takes no new logical clusters any more, and cannot be removed yet, for it still has %d: %s. Delete their Workspaces, and try again",
			name, len(left), shortened(left))
	}
	return a.change(ctx, name, func(s *corev1alpha1.Shard) error {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, clusters.RemovedAnnotation, "true")
		return nil
	})
}

// cordonGrace is how long a leader may still assign by what it has just read, once its shard's copy of the Shard is cordoned.
const cordonGrace = 2 * time.Second

// awaitCordon waits until every shard knows that a shard is cordoned, so that none assigns anything to it any more.
func (a *Admin) awaitCordon(ctx context.Context, all []*corev1alpha1.Shard, name string) error {
	for _, shard := range all {
		clients, err := a.of(shard)
		if err != nil {
			return err
		}
		err = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			copied, err := clients.Shards.Get(clusters.With(ctx, clusters.SystemShards), name, metav1.GetOptions{})
			return err == nil && clusters.IsCordoned(copied), err
		})
		if err != nil {
			return fmt.Errorf("shard %s does not say that it knows that %s is cordoned, and may still assign clusters to it: %w", shard.Name, name, err)
		}
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(cordonGrace):
		return nil
	}
}

// heldBy returns what a shard knows of clusters that the shard called name has: those that it has assigned there, or if it is that shard, its own.
func heldBy(ctx context.Context, clients controllers.Clients, shard *corev1alpha1.Shard, name string) (held []string, err error) {
	everywhere := clusters.With(ctx, clusters.Wildcard)
	if shard.Name == name {
		list, err := clients.LogicalClusters.List(everywhere, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			held = append(held, pathOf(&list.Items[i]))
		}
		return held, nil
	}
	list, err := clients.Workspaces.List(everywhere, metav1.ListOptions{LabelSelector: clusters.ShardLabel + "=" + name})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		held = append(held, "workspace "+clusters.KeyOf(&list.Items[i]).String())
	}
	return held, nil
}

func pathOf(lc *corev1alpha1.LogicalCluster) string {
	if path := lc.Annotations[core.LogicalClusterPathAnnotationKey]; path != "" {
		return path
	}
	return clusters.KeyOf(lc).Cluster.String()
}

// shortened returns the first few of names.
func shortened(names []string) string {
	const most = 10
	slices.Sort(names)
	if len(names) > most {
		return strings.Join(names[:most], ", ") + " and more"
	}
	return strings.Join(names, ", ")
}

// Shard is what is known of a member.
type Shard struct {
	Name     string            `json:"name"`
	Root     bool              `json:"root,omitempty"`
	Replicas []string          `json:"replicas"`
	Labels   map[string]string `json:"labels,omitempty"`
	Cordoned bool              `json:"cordoned"`
	// Clusters is how many logical clusters it has, Capacity how many it can have. Both are 0 if it cannot be asked; then Fault says why.
	Clusters int64  `json:"clusters"`
	Capacity int64  `json:"capacity"`
	Fault    string `json:"fault,omitempty"`
}

// List returns all members.
func (a *Admin) List(ctx context.Context) ([]Shard, error) {
	root, err := a.root(ctx)
	if err != nil {
		return nil, err
	}
	all, err := a.members(ctx)
	if err != nil {
		return nil, err
	}
	out := []Shard{}
	for _, member := range all {
		s := Shard{Name: member.Name, Root: member.Name == root.Name, Replicas: clusters.ReplicasOf(member), Labels: maps.Clone(member.Labels), Cordoned: clusters.IsCordoned(member)}
		home, err := a.home(ctx, member)
		if err != nil && s.Root { // its Shard object may name few of its replicas
			if through, fault := homeOf(ctx, a.clients, member); fault == nil {
				home, err = through, nil
			}
		}
		if err != nil {
			s.Fault = err.Error()
		} else {
			capacity, used := home.Status.Capacity[clusters.CapacityClusters], home.Status.Capacity[clusters.UsedClusters]
			s.Capacity, s.Clusters = capacity.Value(), used.Value()
		}
		out = append(out, s)
	}
	return out, nil
}

// home returns what a shard says of itself.
func (a *Admin) home(ctx context.Context, member *corev1alpha1.Shard) (*corev1alpha1.Shard, error) {
	clients, err := a.of(member)
	if err != nil {
		return nil, err
	}
	return homeOf(ctx, clients, member)
}

func homeOf(ctx context.Context, clients controllers.Clients, member *corev1alpha1.Shard) (*corev1alpha1.Shard, error) {
	return clients.Shards.Get(clusters.With(ctx, clusters.SystemShards), member.Name, metav1.GetOptions{})
}

// Orphan is a logical cluster that has lost its Workspace.
type Orphan struct {
	Shard     string `json:"shard"`
	Cluster   string `json:"cluster"`
	Path      string `json:"path"`
	Workspace string `json:"workspace"`
	Owner     string `json:"ownerShard"`
}

// Orphans returns the logical clusters of all shards that have lost their Workspace.
func (a *Admin) Orphans(ctx context.Context) ([]Orphan, error) {
	all, err := a.members(ctx)
	if err != nil {
		return nil, err
	}
	out := []Orphan{}
	for _, member := range all {
		clients, err := a.of(member)
		if err != nil {
			return nil, err
		}
		list, err := clients.LogicalClusters.List(clusters.With(ctx, clusters.Wildcard), metav1.ListOptions{LabelSelector: clusters.OwnerShardLabel})
		if err != nil {
			return nil, fmt.Errorf("shard %s does not say which of its clusters are orphans: %w", member.Name, err)
		}
		for i := range list.Items {
			lc := &list.Items[i]
			if owner := lc.Spec.Owner; owner != nil && conditions.IsTrue(lc, clusters.ConditionOrphaned) {
				out = append(out, Orphan{
					Shard: member.Name, Cluster: clusters.KeyOf(lc).Cluster.String(), Path: pathOf(lc), Workspace: owner.Cluster + "|" + owner.Name,
					Owner: lc.Labels[clusters.OwnerShardLabel],
				})
			}
		}
	}
	return out, nil
}

// root returns the root shard: the one that needs no membership.
func (a *Admin) root(ctx context.Context) (*corev1alpha1.Shard, error) {
	all, err := a.members(ctx)
	if err != nil {
		return nil, err
	}
	var root *corev1alpha1.Shard
	for _, s := range all {
		switch {
		case s.Annotations[clusters.AuthorityAnnotation] != "":
		case root != nil:
			return nil, fmt.Errorf("shards %s and %s have no membership, and one of them is not the root shard: delete the Shard object that was made by hand", root.Name, s.Name)
		default:
			root = s
		}
	}
	if root != nil {
		return root, nil
	}
	return nil, errors.New("the root shard has no Shard object yet: its leader makes it, try again in a moment")
}

// members returns the Shard objects of those that were not removed, by name.
func (a *Admin) members(ctx context.Context) ([]*corev1alpha1.Shard, error) {
	list, err := a.clients.Shards.List(inRoot(ctx), metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot read the installation's shards from the root shard: %w", err)
	}
	var out []*corev1alpha1.Shard
	for i := range list.Items {
		if s := &list.Items[i]; !clusters.IsRemoved(s) {
			out = append(out, s)
		}
	}
	return out, nil
}

// change changes the Shard object of a member.
func (a *Admin) change(ctx context.Context, name string, change func(*corev1alpha1.Shard) error) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		s, err := a.clients.Shards.Get(inRoot(ctx), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if clusters.IsRemoved(s) {
			return fmt.Errorf("it was removed from the installation")
		}
		if err := change(s); err != nil {
			return err
		}
		_, err = a.clients.Shards.Update(inRoot(ctx), s, metav1.UpdateOptions{FieldManager: "regent-shard"})
		return err
	})
	if err != nil {
		return fmt.Errorf("shard %s: %w", name, err)
	}
	return nil
}

func inRoot(ctx context.Context) context.Context { return clusters.With(ctx, clusters.Root) }

// of returns clients of a shard, which ask one of its replicas. The shard is known by its authority, wherever it is.
func (a *Admin) of(member *corev1alpha1.Shard) (controllers.Clients, error) {
	config := rest.CopyConfig(a.config)
	config.Host = clusters.ReplicasOf(member)[0]
	config.ServerName = pki.ServerName
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return controllers.Clients{}, fmt.Errorf("cannot use the kubeconfig for shard %s: %w", member.Name, err)
	}
	tlsConfig.VerifyConnection = func(state tls.ConnectionState) error { return isShard(member, state.VerifiedChains) }
	transport, err := rest.HTTPWrappersForConfig(config, &http.Transport{
		DialContext: toAny(clusters.ReplicasOf(member)), TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true, DisableKeepAlives: true,
	})
	if err != nil {
		return controllers.Clients{}, fmt.Errorf("cannot use the kubeconfig for shard %s: %w", member.Name, err)
	}
	return clientsOf(config, &http.Client{Transport: transport})
}

// dialTimeout is how long a replica may take to accept a connection.
const dialTimeout = 2 * time.Second

// toAny returns a dialer that connects to the first of a shard's replicas that accepts.
func toAny(replicas []string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		var errs []error
		for _, replica := range replicas {
			u, err := url.Parse(replica)
			if err != nil {
				return nil, err
			}
			port := u.Port()
			if port == "" {
				port = "443"
			}
			conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, net.JoinHostPort(u.Hostname(), port))
			if err == nil {
				return conn, nil
			}
			errs = append(errs, err)
		}
		return nil, errors.Join(errs...)
	}
}

// isShard refuses whoever is not that shard.
func isShard(shard *corev1alpha1.Shard, chains [][]*x509.Certificate) error {
	if len(chains) == 0 {
		return errors.New("the connection is not verified")
	}
	who, authority, err := pki.MemberOf(chains[0])
	wanted := shard.Annotations[clusters.AuthorityAnnotation]
	switch {
	case err != nil:
	case who != (pki.Member{Kind: pki.KindShard, Name: shard.Name}):
		err = fmt.Errorf("%s answers", who)
	case wanted != "" && wanted != pki.Fingerprint(authority):
		return fmt.Errorf("shard %s answers with a membership that was replaced: give its replicas the latest one", shard.Name)
	}
	if err != nil {
		return fmt.Errorf("at the address of shard %s: %w: correct it with regent shard set %s --replica=...", shard.Name, err, shard.Name)
	}
	return nil
}
