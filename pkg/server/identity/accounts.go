package identity

import (
	"cmp"
	"context"
	"crypto"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/pkg/server/serviceaccounts"
)

// DefaultMaxTokenLifetime is how long tokens of service accounts are valid at most, unless an operator says otherwise.
const DefaultMaxTokenLifetime = 24 * time.Hour

// ServiceAccounts says how tokens of service accounts are made and checked. All replicas of a shard need the same.
type ServiceAccounts struct {
	// SigningKeyFile names the private key that signs. Empty: the one in pki/ does, and is made if there is none.
	SigningKeyFile string
	// KeyFiles name further keys, public or private, whose tokens are accepted: those of before a change of the
	// signing key, and the next one.
	KeyFiles []string
	// Issuer is what tokens have as their issuer, and as their audience unless another one is asked for. Empty: a
	// name with the shard's in it.
	Issuer string
	// MaxTokenLifetime is how long tokens are valid at most. 0 stands for DefaultMaxTokenLifetime.
	MaxTokenLifetime time.Duration
	// RootCAFile names a file with the authorities by which clients know the API, in PEM: they are in ConfigMap
	// kube-root-ca.crt of each namespace. Empty: the shard's own.
	RootCAFile string
	// WithoutDefaults says that namespaces get neither that ConfigMap nor the service account default.
	WithoutDefaults bool
}

// NewIssuer reads the keys of a shard, and makes the signing one in a directory if none is given and none is there.
func (c ServiceAccounts) NewIssuer(shard, directory string) (*serviceaccounts.Issuer, error) {
	signing, err := c.signingKey(directory)
	if err != nil {
		return nil, err
	}
	var further []crypto.PublicKey
	for _, name := range c.KeyFiles {
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
	issuer := c.IssuerOf(shard)
	return &serviceaccounts.Issuer{Name: issuer, Audiences: []string{issuer}, Keys: keys}, nil
}

// IssuerOf returns the issuer of a shard's tokens.
func (c ServiceAccounts) IssuerOf(shard string) string {
	return cmp.Or(c.Issuer, "regent.dev/shards/"+shard)
}

func (c ServiceAccounts) signingKey(directory string) (crypto.Signer, error) {
	if c.SigningKeyFile == "" {
		return pki.EnsureServiceAccountKey(directory)
	}
	key, err := pki.ReadSigner(c.SigningKeyFile)
	if err != nil {
		return nil, fmt.Errorf("--service-account-signing-key-file: %w", err)
	}
	return key, nil
}

// ReadRootCA returns the authorities that the controllers publish, and nothing if they are not to. own is the shard's.
func (c ServiceAccounts) ReadRootCA(own []byte) (string, error) {
	switch {
	case c.WithoutDefaults:
		return "", nil
	case c.RootCAFile == "":
		return string(own), nil
	}
	given, err := os.ReadFile(c.RootCAFile)
	if err != nil {
		return "", fmt.Errorf("--root-ca-file: %w", err)
	}
	if _, err := cert.ParseCertsPEM(given); err != nil {
		return "", fmt.Errorf("--root-ca-file: %s holds no certificates: %w", c.RootCAFile, err)
	}
	return string(given), nil
}

// boundObjects finds what tokens are bound to.
type boundObjects struct{ late *late }

// Cached implements serviceaccounts.Objects.
func (b *boundObjects) Cached(resource schema.GroupVersionResource, key clusters.Key) (metav1.Object, bool) {
	s := b.late.Load()
	if s == nil {
		return nil, false
	}
	informer, ok := s.Informers.Metadata[resource]
	if !ok {
		return nil, false
	}
	return informer.Get(key)
}

// Live implements serviceaccounts.Objects.
func (b *boundObjects) Live(ctx context.Context, resource schema.GroupVersionResource, key clusters.Key) (metav1.Object, error) {
	s := b.late.Load()
	if s == nil {
		return nil, errNotYet
	}
	return s.Reader.Object(request.WithNamespace(clusters.WithOnly(ctx, key.Cluster), key.Namespace), resource, key.Name)
}

// isServiceAccount reports whether a user has what only the authenticator of service accounts gives: their names,
// groups, and the cluster that they are of.
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
