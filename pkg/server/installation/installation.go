// Package installation is what an administrator does with the shards of an installation: regent shard. The root shard
// says who is a member, in cluster root; every other shard is asked for what it has.
package installation

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/retry"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/pkg/server/shards"
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

// ErrRemoved says that a shard was a member.
var ErrRemoved = errors.New("it was removed from the installation")

// Addition is a new shard, or one that gets a new membership.
type Addition struct {
	Name string
	// Replicas are the URLs of the shard's replicas, as other shards and fronts reach them.
	Replicas []string
	// Labels are what Workspaces select shards by.
	Labels map[string]string
	// Renew gives a shard that is a member a new membership. The old one is worth nothing any more. Replicas and
	// labels are then changed as by Set.
	Renew bool
}

// Add makes a shard a member, and returns the membership with which its replicas join. The keys of the installation's
// authority are in bundle.
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
			setLabels(s, add.Labels)
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
		if there, err := a.clients.Shards.Get(inRoot(ctx), add.Name, metav1.GetOptions{}); err == nil && clusters.IsRemoved(there) {
			return nil, fmt.Errorf("shard %s: %w, and its name is not used again: choose another name, with an empty root directory and etcd", add.Name, ErrRemoved)
		}
		return nil, fmt.Errorf("there is a shard %s, or there was one: choose another name, or give --renew for a new membership of the same shard", add.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make shard %s a member: %w", add.Name, err)
	}
	return membership, nil
}

// AddFront makes a front a member, and returns its membership. A front that is a member gets a new one, and the old one
// is worth nothing any more. The keys of the installation's authority are in bundle.
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
	if root.Annotations[clusters.FrontAnnotationPrefix+name] == "" {
		return fmt.Errorf("there is no front %s", name)
	}
	return a.change(ctx, root.Name, func(s *corev1alpha1.Shard) error {
		delete(s.Annotations, clusters.FrontAnnotationPrefix+name)
		return nil
	})
}

// accept returns the authority of a membership. It refuses keys of another installation than that to which the
// kubeconfig leads.
func (a *Admin) accept(bundle *pki.Bundle, membership *pki.Membership) (*pki.Authority, error) {
	config := rest.CopyConfig(a.config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("cannot use the kubeconfig: %w", err)
	}
	// Of a roll the two may know different steps.
	if certs, err := cert.ParseCertsPEM(config.CAData); err == nil && !slices.ContainsFunc(certs, func(c *x509.Certificate) bool { return slices.ContainsFunc(bundle.Trusted(), c.Equal) }) {
		return nil, errors.New("the certificate authority in --pki-directory is another one than that of the shard to which the kubeconfig leads: give the directory pki/ of that shard")
	}
	return membership.Authority()
}

// Set changes the URLs of a shard's replicas, and its labels. A label with an empty value is removed.
func (a *Admin) Set(ctx context.Context, name string, replicas []string, labels map[string]string) error {
	return a.change(ctx, name, func(s *corev1alpha1.Shard) error {
		setReplicas(s, replicas)
		setLabels(s, labels)
		return nil
	})
}

func setLabels(s *corev1alpha1.Shard, labels map[string]string) {
	for key, value := range labels {
		if value == "" {
			delete(s.Labels, key)
		} else {
			metav1.SetMetaDataLabel(&s.ObjectMeta, key, value)
		}
	}
}

func setReplicas(s *corev1alpha1.Shard, replicas []string) {
	if len(replicas) > 0 {
		s.Spec.BaseURL = replicas[0]
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, clusters.ReplicasAnnotation, strings.Join(replicas, ","))
	}
}

// Cordon makes a shard take no new logical clusters, or take them again.
func (a *Admin) Cordon(ctx context.Context, name string, on bool) error {
	return a.change(ctx, name, func(s *corev1alpha1.Shard) error {
		if on {
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, clusters.CordonAnnotation, "true")
		} else {
			delete(s.Annotations, clusters.CordonAnnotation)
		}
		return nil
	})
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
			return ErrRemoved
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
	config, transport, through, err := a.transportTo(member)
	if err != nil {
		return controllers.Clients{}, err
	}
	transport.DisableKeepAlives = true
	return clientsOf(config, &http.Client{Transport: through})
}

// transportTo returns how a shard is asked: the configuration of clients, and the transport, which may be wrapped.
func (a *Admin) transportTo(member *corev1alpha1.Shard) (*rest.Config, *http.Transport, http.RoundTripper, error) {
	config := rest.CopyConfig(a.config)
	// Errors name it. The dialer knows all replicas.
	config.Host = "https://" + member.Name
	if urls := clusters.ReplicasOf(member); len(urls) > 0 {
		config.Host = urls[0]
	}
	config.ServerName = pki.ServerName
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("cannot use the kubeconfig for shard %s: %w", member.Name, err)
	}
	tlsConfig.VerifyConnection = shards.Verify(member.Name, member.Annotations[clusters.AuthorityAnnotation])
	dialer, err := shards.NewDialer(member.Name, clusters.ReplicasOf(member), tlsConfig)
	if err != nil {
		return nil, nil, nil, err
	}
	transport := dialer.Transport()
	through, err := rest.HTTPWrappersForConfig(config, shards.WithBounds(member.Name, transport))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("cannot use the kubeconfig for shard %s: %w", member.Name, err)
	}
	return config, transport, through, nil
}
