package serviceaccounts

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/token/jwt"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/lru"

	"github.com/regent-project/regent/pkg/clusters"
)

const (
	// skew is how far the clocks of two replicas may be apart: a token of one is valid at the other at once.
	skew = time.Minute
	// rememberedTokens is how many tokens' signatures are remembered. A token takes about 2 KiB, and never much
	// more than maxTokenLength.
	rememberedTokens = 2048
	// maxTokenLength is how long tokens are at most. Whoever may ask for tokens decides about a part of what is in
	// them.
	maxTokenLength = 8 << 10
)

// Authenticator says whose a token is.
type Authenticator struct {
	issuer   *Issuer
	accounts *accounts
	// verified has the claims of tokens with sound signatures. What may change is not among what is remembered.
	verified *lru.Cache
}

// NewAuthenticator returns an authenticator of the tokens that issuer signs. It finds accounts and Secrets in objects.
func NewAuthenticator(issuer *Issuer, objects Objects) *Authenticator {
	return &Authenticator{issuer: issuer, accounts: newAccounts(objects), verified: lru.New(rememberedTokens)}
}

// AuthenticateToken implements authenticator.Token. It is not ok if the token is not of this issuer, and an error if it
// is and is not valid, or not for an audience in the context.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if len(token) > maxTokenLength || !a.issued(token) {
		return nil, false, nil
	}
	c, err := a.claimsOf(token)
	if err != nil {
		return nil, false, err
	}
	if err := c.inTime(time.Now()); err != nil {
		return nil, false, err
	}
	audiences, err := c.audiences(ctx, a.issuer)
	if err != nil {
		return nil, false, err
	}
	if err := a.accounts.check(ctx, c.Private); err != nil {
		return nil, false, err
	}
	return &authenticator.Response{User: c.user(), Audiences: audiences}, true, nil
}

// issued reports whether a token is in compact form and says that it is this issuer's. It proves nothing, and keeps
// tokens of others from causing work.
func (a *Authenticator) issued(token string) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || strings.ContainsAny(token, "{\" \t\r\n") {
		return false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return false
	}
	var says struct {
		Issuer string `json:"iss"`
	}
	return json.Unmarshal(payload, &says) == nil && says.Issuer == a.issuer.Name
}

// claimsOf returns what a token says, if one of the keys has signed it.
func (a *Authenticator) claimsOf(token string) (*claims, error) {
	if c, ok := a.verified.Get(token); ok {
		return c.(*claims), nil
	}
	c, err := a.issuer.Keys.claims(token, keyOf(token))
	if err != nil {
		return nil, err
	}
	if err := c.complete(a.issuer.Name); err != nil {
		return nil, err
	}
	a.verified.Add(token, c)
	return c, nil
}

// claims returns what a token says that the key with an id has signed.
func (k *Keys) claims(token, key string) (*claims, error) {
	payload, err := k.verify(token, key)
	if err != nil {
		return nil, err
	}
	c := &claims{}
	if err := json.Unmarshal(payload, c); err != nil {
		return nil, fmt.Errorf("the token's claims cannot be decoded: %w", err)
	}
	return c, nil
}

// complete returns an error unless the claims are such as an Issuer makes. Its keys may have signed other things.
func (c *claims) complete(issuer string) error {
	p := c.Private
	subject := serviceaccount.MakeUsername(p.Namespace, p.Account.Name)
	names := []string{p.Namespace, p.Account.Name, string(p.Account.UID)}
	if p.Secret != nil {
		names = append(names, p.Secret.Name, string(p.Secret.UID))
	}
	if c.Issuer != issuer || c.Subject != subject || c.Expiry == nil || !clusters.IsValidName(logicalcluster.Name(p.ClusterName)) || slices.Contains(names, "") {
		return errors.New("the token does not say of which service account and logical cluster it is, or never ends")
	}
	if _, _, err := serviceaccount.SplitUsername(subject); err != nil {
		return fmt.Errorf("the token is of no service account: %w", err)
	}
	return nil
}

func (c *claims) inTime(now time.Time) error {
	switch {
	case !now.Before(c.Expiry.Time()):
		return fmt.Errorf("the token expired at %s: ask for a new one", c.Expiry.Time().UTC().Format(time.RFC3339))
	case now.Add(skew).Before(c.NotBefore.Time()), now.Add(skew).Before(c.IssuedAt.Time()):
		return errors.New("the token is valid only later: compare the clocks of the replicas")
	}
	return nil
}

// audiences returns for which audiences of the context, or else of the issuer's API, the token is.
func (c *claims) audiences(ctx context.Context, issuer *Issuer) (authenticator.Audiences, error) {
	wanted, ok := authenticator.AudiencesFrom(ctx)
	if !ok {
		wanted = issuer.Audiences
	}
	audiences := wanted.Intersect(authenticator.Audiences(c.Audience))
	if len(audiences) == 0 {
		return nil, fmt.Errorf("the token is for %q, and not for %q: ask for one with another audience", c.Audience, wanted)
	}
	return audiences, nil
}

// user returns whom the claims name.
func (c *claims) user() user.Info {
	info := serviceaccount.ServiceAccountInfo{
		Namespace: c.Private.Namespace, Name: c.Private.Account.Name, UID: string(c.Private.Account.UID), CredentialID: jwt.CredentialIDForJTI(c.ID),
	}
	who := info.UserInfo().(*user.DefaultInfo)
	if who.Extra == nil {
		who.Extra = map[string][]string{}
	}
	who.Extra[clusters.IdentityClusterExtra] = []string{c.Private.ClusterName}
	return who
}

var _ authenticator.Token = (*Authenticator)(nil)
