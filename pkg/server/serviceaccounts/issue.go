// Package serviceaccounts makes the tokens of service accounts, and says whose a token is. A service account is of one
// logical cluster, and so is its token: the claims name the cluster.
//
// A token is a signed JWT with upstream's claims. It is worth nothing once the account has gone: each use looks whether
// the account, and the Secret to which the token may be bound, still have the uids that it names.
package serviceaccounts

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/kcp-dev/logicalcluster/v3"
	"gopkg.in/go-jose/go-jose.v2/jwt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// Issuer signs tokens.
type Issuer struct {
	// Name is what tokens have as their issuer.
	Name string
	// Audiences are those of the API: tokens are for them unless somebody asks for others.
	Audiences []string
	Keys      *Keys
}

// Grant says for whom a token is.
type Grant struct {
	Cluster logicalcluster.Name
	Account *corev1.ServiceAccount
	// Secret is what the token is bound to: it ends with it. Nil: with nothing but the account.
	Secret    *corev1.Secret
	Audiences []string
	Lifetime  time.Duration
}

// Token is a new token.
type Token struct {
	Text string
	// ID names the token in audit logs, and tells nobody the token.
	ID      string
	Expires time.Time
}

// Issue signs a token.
func (i *Issuer) Issue(g Grant) (Token, error) {
	now := time.Now()
	expires := now.Add(g.Lifetime).Truncate(time.Second)
	c := claims{
		Claims: jwt.Claims{
			Issuer: i.Name, Subject: serviceaccount.MakeUsername(g.Account.Namespace, g.Account.Name), Audience: g.Audiences, ID: uuid.NewString(),
			IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(expires),
		},
		Private: private{ClusterName: g.Cluster.String(), Namespace: g.Account.Namespace, Account: reference{g.Account.Name, g.Account.UID}},
	}
	if g.Secret != nil {
		c.Private.Secret = &reference{g.Secret.Name, g.Secret.UID}
	}
	text, err := jwt.Signed(i.Keys.signer).Claims(c).CompactSerialize()
	if err != nil {
		return Token{}, fmt.Errorf("cannot sign the token of service account %s/%s: %w", g.Account.Namespace, g.Account.Name, err)
	}
	return Token{Text: text, ID: c.ID, Expires: expires}, nil
}

// claims are what a token says.
type claims struct {
	jwt.Claims
	Private private `json:"kubernetes.io"`
}

// private are upstream's private claims, and kcp's for the logical cluster.
type private struct {
	ClusterName string     `json:"clusterName"`
	Namespace   string     `json:"namespace"`
	Account     reference  `json:"serviceaccount"`
	Secret      *reference `json:"secret,omitempty"`
}

type reference struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}
