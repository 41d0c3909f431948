package serviceaccounts

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apimachinery/pkg/types"

	"github.com/regent-project/regent/pkg/clusters"
)

// Published is what a shard tells other shards (status.TokenKeysPath), so that they recognize its tokens. It has no
// secret. Others believe it for tokens of accounts whose logical clusters are on that shard, and for no others.
type Published struct {
	// Issuer is what its tokens have as their issuer, and Audiences are those of its API.
	Issuer    string   `json:"issuer"`
	Audiences []string `json:"audiences"`
	// Keys are the public keys of tokens that it accepts, in DER.
	Keys [][]byte `json:"keys"`
}

// Published returns what other shards need to know.
func (i *Issuer) Published() (Published, error) {
	out := Published{Issuer: i.Name, Audiences: i.Audiences}
	for _, one := range i.Keys.accepted {
		der, err := x509.MarshalPKIXPublicKey(one.key)
		if err != nil {
			return Published{}, fmt.Errorf("a key of service accounts' tokens cannot be encoded: %w", err)
		}
		out.Keys = append(out.Keys, der)
	}
	return out, nil
}

// maximumRSA is the size of the largest RSA keys of other shards that are used, in bits: larger ones would only cost
// time.
const maximumRSA = 8192

// issuer returns an issuer that cannot sign. Keys of kinds that this version does not know are left out: a newer
// version may have them.
func (p Published) issuer() (*Issuer, error) {
	if p.Issuer == "" || len(p.Audiences) == 0 {
		return nil, errors.New("it does not say which issuer and audiences its tokens have: it may run another version")
	}
	out := &Issuer{Name: p.Issuer, Audiences: p.Audiences, Keys: &Keys{accepted: map[string]accepted{}}}
	for _, der := range p.Keys {
		key, err := x509.ParsePKIXPublicKey(der)
		if tooLarge, ok := key.(*rsa.PublicKey); err != nil || ok && tooLarge.N.BitLen() > maximumRSA {
			continue
		}
		_ = out.Keys.accept(crypto.PublicKey(key)) // not of a kind that this version knows
	}
	if len(out.Keys.accepted) == 0 {
		return nil, errors.New("it has no key of tokens that this version knows: it may run another version")
	}
	return out, nil
}

// Question asks the shard of a service account (status.AccountPath) whether a token of it is still good.
type Question struct {
	// Key is the id of the key that has signed the token.
	Key     string
	Cluster logicalcluster.Name
	// Namespace, Account and UID name the account. Secret and SecretUID are what the token is bound to; empty: to
	// nothing but the account.
	Namespace, Account, Secret string
	UID, SecretUID             types.UID
}

// Answer is the answer to a Question.
type Answer struct {
	// Good says that all to which the token is bound is there.
	Good bool `json:"good"`
}

// Query returns the question for a URL.
func (q Question) Query() url.Values {
	out := url.Values{
		"key": {q.Key}, "cluster": {q.Cluster.String()}, "namespace": {q.Namespace}, "account": {q.Account}, "uid": {string(q.UID)},
	}
	if q.Secret != "" {
		out.Set("secret", q.Secret)
		out.Set("secretuid", string(q.SecretUID))
	}
	return out
}

// ReadQuestion returns the question in a URL.
func ReadQuestion(query url.Values) (Question, error) {
	q := Question{
		Key: query.Get("key"), Cluster: logicalcluster.Name(query.Get("cluster")), Namespace: query.Get("namespace"), Account: query.Get("account"),
		Secret: query.Get("secret"), UID: types.UID(query.Get("uid")), SecretUID: types.UID(query.Get("secretuid")),
	}
	names := []string{q.Key, q.Namespace, q.Account, string(q.UID)}
	if q.Secret != "" || q.SecretUID != "" {
		names = append(names, q.Secret, string(q.SecretUID))
	}
	if slices.Contains(names, "") || !clusters.IsValidName(q.Cluster) {
		return Question{}, errors.New("ask with key, cluster, namespace, account and uid, and for a token that is bound to a Secret with secret and secretuid")
	}
	return q, nil
}

// private returns what the token of a question says.
func (q Question) private() private {
	out := private{ClusterName: q.Cluster.String(), Namespace: q.Namespace, Account: reference{q.Account, q.UID}}
	if q.Secret != "" {
		out.Secret = &reference{q.Secret, q.SecretUID}
	}
	return out
}

// question returns what to ask about a token that key has signed.
func (p private) question(key string) Question {
	q := Question{Key: key, Cluster: logicalcluster.Name(p.ClusterName), Namespace: p.Namespace, Account: p.Account.Name, UID: p.Account.UID}
	if p.Secret != nil {
		q.Secret, q.SecretUID = p.Secret.Name, p.Secret.UID
	}
	return q
}

// Answer answers another shard. The error says that this replica cannot know now.
func (a *Authenticator) Answer(ctx context.Context, q Question) (Answer, error) {
	if _, ok := a.issuer.Keys.accepted[q.Key]; !ok {
		return Answer{}, fmt.Errorf("this replica does not have key %.64q: all replicas of a shard need the same", q.Key)
	}
	return a.answer(ctx, q)
}

// answer answers about a token whose key may vouch for the account.
func (a *Authenticator) answer(ctx context.Context, q Question) (Answer, error) {
	err := a.accounts.check(ctx, q.private())
	if errors.Is(err, errGone) {
		return Answer{}, nil
	}
	return Answer{Good: err == nil}, err
}
