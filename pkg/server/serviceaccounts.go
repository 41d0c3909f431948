package server

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/apis/core"
	"github.com/regent-project/regent/pkg/server/apis/resource"
	"github.com/regent-project/regent/pkg/server/apis/review"
	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/pkg/server/serviceaccounts"
)

// DefaultMaxTokenLifetime is how long tokens of service accounts are valid at most, unless an operator says otherwise.
const DefaultMaxTokenLifetime = 24 * time.Hour

// ServiceAccounts says how tokens of service accounts are made and checked. All replicas of a shard need the same.
type ServiceAccounts struct {
	// SigningKeyFile names the private key that signs. Empty: the one in pki/ does, and is made if there is none.
	SigningKeyFile string
	// KeyFiles name further keys, public or private, whose tokens are accepted: those of before a change of the signing key, and the
	// next one.
	KeyFiles []string
	// Issuer is what tokens have as their issuer, and as their audience unless another one is asked for. Empty: a name with the
	// shard's in it.
	Issuer string
	// MaxTokenLifetime is how long tokens are valid at most. 0 stands for DefaultMaxTokenLifetime.
	MaxTokenLifetime time.Duration
	// RootCAFile names a file with the authorities by which clients know the API, in PEM: they are in ConfigMap kube-root-ca.crt of each
	// namespace. Empty: the shard's own.
	RootCAFile string
	// WithoutDefaults says that namespaces get neither that ConfigMap nor the service account default.
	WithoutDefaults bool
}

// readRootCA returns the authorities that the controllers publish, and nothing if they are not to.
func (c Config) readRootCA(own []byte) (string, error) {
	name := c.ServiceAccounts.RootCAFile
	switch {
	case c.ServiceAccounts.WithoutDefaults:
		return "", nil
	case name == "":
		return string(own), nil
	}
	given, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("--root-ca-file: %w", err)
	}
	if _, err := cert.ParseCertsPEM(given); err != nil {
		return "", fmt.Errorf("--root-ca-file: %s holds no certificates: %w", name, err)
	}
	return string(given), nil
}

// newTokenIssuer reads the keys, and makes the signing one if there is none.
func (c Config) newTokenIssuer() (*serviceaccounts.Issuer, error) {
	signing, err := c.signingKey()
	if err != nil {
		return nil, err
	}
	var further []crypto.PublicKey
	for _, name := range c.ServiceAccounts.KeyFiles {
		keys, err := keyutil.PublicKeysFromFile(name)
		if err != nil {
			return nil, fmt.Errorf("--service-account-key-file: %w", err)
		}
		for _, key := range keys {
			further = append(further, key)
		}
	}
	keys, err := serviceaccounts.NewKeys(signing, further...)
	if err != nil {
		return nil, err
	}
	issuer := cmp.Or(c.ServiceAccounts.Issuer, "regent.dev/shards/"+c.Shard)
	return &serviceaccounts.Issuer{Name: issuer, Audiences: []string{issuer}, Keys: keys}, nil
}

func (c Config) signingKey() (crypto.Signer, error) {
	name := c.ServiceAccounts.SigningKeyFile
	if name == "" {
		return pki.EnsureServiceAccountKey(filepath.Join(c.RootDirectory, pkiDirectory))
	}
	key, err := pki.ReadSigner(name)
	if err != nil {
		return nil, fmt.Errorf("--service-account-signing-key-file: %w", err)
	}
	return key, nil
}

// virtual returns what is served and not stored.
func (r *run) virtual(caches *caches) []resource.Virtual {
	tokens := core.Tokens{
		Issuer: r.tokenIssuer, Accounts: caches.live.reader,
		MaxLifetime: cmp.Or(r.cfg.ServiceAccounts.MaxTokenLifetime, DefaultMaxTokenLifetime),
	}
	reviews := review.Tokens{
		Authenticator: r.generic.Authentication.Authenticator, Audiences: r.tokenIssuer.Audiences,
		Hidden: func(who user.Info) bool { return isReserved(who) || isMember(who) },
	}
	access := review.Access{Authorizer: r.generic.Authorization.Authorizer, Rights: r.rights}
	return append(access.Reviews(), tokens.Subresource(), reviews.Reviews(), review.Self())
}

// rights returns the rules that a user has by RBAC. What webhooks say of him is known only for one request at a time.
func (r *run) rights(ctx context.Context, who user.Info, namespace string) ([]rbacv1.PolicyRule, error) {
	rules, incomplete := r.rbac.Rights(ctx, who, namespace)
	if r.cfg.AuthorizationConfigFile != "" && !noWebhook(who) {
		incomplete = errors.Join(incomplete, errors.New("webhooks may allow more, or less: ask about what you want to do, as kubectl auth can-i <verb> <resource>"))
	}
	return rules, incomplete
}

// boundObjects finds what tokens are bound to. The caches are set before the server serves.
type boundObjects struct{ caches atomic.Pointer[caches] }

// Cached implements serviceaccounts.Objects.
func (b *boundObjects) Cached(resource schema.GroupVersionResource, key clusters.Key) (metav1.Object, bool) {
	c := b.caches.Load()
	if c == nil {
		return nil, false
	}
	informer, ok := c.informers.Metadata[resource]
	if !ok {
		return nil, false
	}
	return informer.Get(key)
}

// Live implements serviceaccounts.Objects.
func (b *boundObjects) Live(ctx context.Context, resource schema.GroupVersionResource, key clusters.Key) (metav1.Object, error) {
	c := b.caches.Load()
	if c == nil {
		return nil, fmt.Errorf("this replica does not read its store yet")
	}
	return c.live.reader.Object(request.WithNamespace(inCluster(ctx, key.Cluster), key.Namespace), resource, key.Name)
}

// isServiceAccount reports whether a user has what only the authenticator of service accounts gives: their names, groups, and the
// cluster that they are of.
func isServiceAccount(who user.Info) bool {
	_, bound := who.GetExtra()[clusters.IdentityClusterExtra]
	return bound || strings.HasPrefix(who.GetName(), serviceaccount.ServiceAccountUsernamePrefix) || slices.ContainsFunc(who.GetGroups(), func(group string) bool {
		return group == serviceaccount.AllServiceAccountsGroup || strings.HasPrefix(group, serviceaccount.ServiceAccountGroupPrefix) ||
			strings.HasPrefix(group, clusters.IdentityGroupPrefix)
	})
}

// serviceAccountFault is the error for a user of another authenticator who seems to be a service account.
func serviceAccountFault(who user.Info) error {
	return fmt.Errorf("user %q of %q, with extra %q: only a token that the server has signed makes somebody a service account: give this user another name, other groups and no extra %s",
		who.GetName(), who.GetGroups(), who.GetExtra(), clusters.IdentityClusterExtra)
}

var _ serviceaccounts.Objects = (*boundObjects)(nil)
