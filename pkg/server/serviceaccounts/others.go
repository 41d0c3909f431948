package serviceaccounts

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/utils/lru"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/fetch"
	"github.com/regent-project/regent/pkg/server/status"
)

// Peers are the other shards of the installation, as this replica knows them.
type Peers interface {
	// Hears returns those that are members now, and whether each is heard.
	Hears() map[string]bool
	// Ask sends GET to one. Each of its replicas may take so long, and answer with so many bytes.
	Ask(ctx context.Context, shard, path string, each time.Duration, limit int64) ([]byte, error)
	// CheckHome returns an error unless a logical cluster is on that shard. It must not rest on the word of that
	// shard alone.
	CheckHome(ctx context.Context, shard string, cluster logicalcluster.Name) error
	// Home returns the shard that has a logical cluster. It must not rest on the word of that shard alone.
	Home(ctx context.Context, cluster logicalcluster.Name) (shard string, err error)
	// HasMovedFrom reports whether a logical cluster is on this shard, and has come from that one.
	HasMovedFrom(shard string, cluster logicalcluster.Name) bool
}

const (
	// goodFor is for how long a good token is not asked about again: so long it works in other shards after its
	// account was deleted. A question that was not answered is asked again after unansweredFor, so that a shard
	// that hangs does not cost each request patience.
	goodFor, unansweredFor = 5 * time.Second, time.Second
	// patience is how long a question may take in all, each how long one replica of the other shard may take.
	patience, each = 3 * time.Second, time.Second
	// rememberedAnswers is how many answers are remembered, of some 300 bytes.
	rememberedAnswers = 8192
	// maxAnswer is how many bytes another shard may answer with.
	maxAnswer = 64 << 10
)

// Others says whose a token is that another shard of the installation has signed. A token that no shard has signed
// costs one look into a map, and no question, whoever makes it up.
//
//	which shard has published its key?            asked by Run, beforehand
//	are signature, time and audience good?        not asked
//	is the account's cluster on that shard?       asked once for each cluster
//	is the account there, and the token's Secret? asked each goodFor
//
// A shard's key vouches only for accounts whose clusters are on that shard, which others than the shard itself confirm
// (Peers.CheckHome), and for those whose clusters have moved from there: of these their new shard says whether the key
// may vouch for them. Whatever one shard does holds up users of others by nothing, and its own by patience. Make it
// with NewOthers. All methods may be called at any time on any goroutine.
type Others struct {
	peers    Peers
	here     *Authenticator
	keys     publishedKeys
	verified *lru.Cache // the claims of tokens whose signatures are sound
	answers  *cache.LRUExpireCache
	asking   singleflight.Group
	places   fetch.Places // there are few shards, and their names are never used again
}

// NewOthers returns an authenticator that knows no tokens until Run runs. here knows the accounts of this shard.
func NewOthers(peers Peers, here *Authenticator) *Others {
	return &Others{peers: peers, here: here, verified: lru.New(rememberedTokens), answers: cache.NewLRUExpireCache(rememberedAnswers)}
}

// AuthenticateToken implements authenticator.Token. It is not ok if no other shard has signed the token, and an error
// if one has and the token is not valid, or cannot be checked now.
func (o *Others) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	var faults []error
	for _, by := range o.keys.publishing(keyOf(token)) {
		resp, err := o.authenticate(ctx, by, token)
		if err == nil {
			return resp, true, nil
		}
		faults = append(faults, fmt.Errorf("as a token of shard %s: %w", by.shard, err))
	}
	return nil, false, errors.Join(faults...)
}

// authenticate returns whose the token of a shard is.
func (o *Others) authenticate(ctx context.Context, by publisher, token string) (*authenticator.Response, error) {
	if _, member := o.peers.Hears()[by.shard]; !member {
		return nil, errors.New("it is no member of the installation any more")
	}
	key := keyOf(token)
	c, err := o.claimsOf(by, key, token)
	if err != nil {
		return nil, err
	}
	if err := c.inTime(time.Now()); err != nil {
		return nil, err
	}
	audiences, err := c.audiences(ctx, by.Issuer)
	if err != nil {
		return nil, err
	}
	if o.peers.HasMovedFrom(by.shard, logicalcluster.Name(c.Private.ClusterName)) {
		err = o.here.accounts.check(ctx, c.Private)
	} else {
		err = o.check(ctx, by.shard, c.Private.question(key))
	}
	if err != nil {
		return nil, err
	}
	return &authenticator.Response{User: c.user(), Audiences: audiences}, nil
}

// claimsOf returns what a token says. Signatures are remembered for the shard whose key has made them: another shard
// may have published the same key, without having it.
func (o *Others) claimsOf(by publisher, key, token string) (*claims, error) {
	remembered := by.shard + " " + token
	c, ok := o.verified.Get(remembered)
	if !ok {
		fresh, err := by.Keys.claims(token, key)
		if err != nil {
			return nil, err
		}
		o.verified.Add(remembered, fresh)
		c = fresh
	}
	of := c.(*claims)
	if err := of.complete(by.Name); err != nil {
		return nil, err
	}
	if clusters.IsSystem(logicalcluster.Name(of.Private.ClusterName)) {
		return nil, fmt.Errorf("it is of cluster %s, which every shard has: use it at its own shard", of.Private.ClusterName)
	}
	return of, nil
}

// check returns an error unless the shard has the cluster of an account, and says that the account's token is good.
// Requests that want to know the same share the question.
func (o *Others) check(ctx context.Context, shard string, q Question) error {
	// what is remembered is as large as whoever signs likes
	sum := sha256.Sum256([]byte(shard + " " + q.Query().Encode()))
	key := string(sum[:])
	if known, ok := o.answers.Get(key); ok {
		return known.(answer).err
	}
	_, err, _ := o.asking.Do(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience) // others may wait for it, too
		defer cancel()
		err := o.ask(ctx, shard, q)
		o.answers.Add(key, answer{err}, lifetimeOf(err))
		return nil, err
	})
	return err
}

// answer is what has come of a question.
type answer struct{ err error }

func lifetimeOf(err error) time.Duration {
	switch {
	case err == nil:
		return goodFor
	case errors.Is(err, errGone):
		return deadFor
	}
	return unansweredFor
}

// ask asks a shard, if it is heard: one that is down would only cost time.
func (o *Others) ask(ctx context.Context, shard string, q Question) error {
	if !o.peers.Hears()[shard] {
		return errors.New("it is not heard, so its accounts are not known now: try again when it is")
	}
	leave, err := o.places.Enter(ctx, shard)
	if err != nil {
		return err
	}
	defer leave()
	astray := o.peers.CheckHome(ctx, shard, q.Cluster)
	if astray != nil {
		home, err := o.peers.Home(ctx, q.Cluster)
		if err != nil || home == shard || !o.peers.Hears()[home] {
			return astray
		}
		shard = home // it may have moved there: that shard knows from where
	}
	err = o.askAbout(ctx, shard, q)
	if err != nil && astray != nil {
		return fmt.Errorf("%w; the shard that has it says: %w", astray, err)
	}
	return err
}

// askAbout asks a shard that has the cluster of an account.
func (o *Others) askAbout(ctx context.Context, shard string, q Question) error {
	body, err := o.peers.Ask(ctx, shard, status.AccountPath+"?"+q.Query().Encode(), each, maxAnswer)
	if err != nil {
		return fmt.Errorf("shard %s does not say whether the account is there: %w", shard, err)
	}
	var says Answer
	if err := json.Unmarshal(body, &says); err != nil {
		return fmt.Errorf("the answer of shard %s cannot be decoded: %w", shard, err)
	}
	if !says.Good {
		return fmt.Errorf("service account %s: %w", clusters.Key{Cluster: q.Cluster, Namespace: q.Namespace, Name: q.Account}, errGone)
	}
	return nil
}

// Answer answers another shard, also about tokens that a shard has signed from which the account's cluster has moved to
// this one. The error says that this replica cannot know now.
func (o *Others) Answer(ctx context.Context, q Question) (Answer, error) {
	for _, by := range o.keys.publishing(q.Key) {
		if o.peers.HasMovedFrom(by.shard, q.Cluster) {
			return o.here.answer(ctx, q)
		}
	}
	return o.here.Answer(ctx, q)
}

var _ authenticator.Token = (*Others)(nil)
