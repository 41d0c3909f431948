package authentication

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	jose "gopkg.in/go-jose/go-jose.v2"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"
)

const (
	// refresh is how often an issuer is asked for its keys: a key that it has withdrawn is trusted no longer than
	// that.
	refresh = time.Minute
	// pause is the least time between two questions, however many tokens have keys that nobody knows, and after a
	// failure.
	pause = time.Second
	// patience is how long a token may wait for the keys, and maxWaiting how many tokens of an issuer may wait.
	patience   = 5 * time.Second
	maxWaiting = 64
)

// keySet has the keys of one issuer. Upstream's keeps a key for as long as no token of another key comes, also one that
// the issuer has withdrawn, and runs goroutines that nobody joins. This one asks again and again, from Run alone.
type keySet struct {
	issuer issuer
	client *http.Client
	// groups is the claim with the user's groups. Tokens must hold it themselves. Empty: no claim.
	groups string

	keys     atomic.Pointer[[]jose.JSONWebKey] // nil: none were fetched yet
	verdicts *lru.Cache                        // verdicts, by the token's hash
	hurry    chan struct{}                     // holds an element if keys are wanted at once
	end      chan struct{}                     // closed when Run has returned

	mu      sync.Mutex
	next    chan struct{} // closed when the next fetch has ended
	waiting int
}

func newKeySet(of issuer, groups string) (*keySet, error) {
	client, err := of.client()
	if err != nil {
		return nil, err
	}
	return &keySet{
		issuer: of, client: client, groups: groups, verdicts: lru.New(rememberedTokens),
		hurry: make(chan struct{}, 1), end: make(chan struct{}), next: make(chan struct{}),
	}, nil
}

// Run keeps the keys up to date until ctx ends.
func (k *keySet) Run(ctx context.Context) {
	defer close(k.end)
	complaint := ""
	for {
		complaint = k.update(ctx, complaint)
		if !wait(ctx, pause, nil) || !wait(ctx, refresh-pause, k.hurry) {
			return
		}
	}
}

// wait waits for d, or for sooner, and returns false if ctx ends.
func wait(ctx context.Context, d time.Duration, sooner <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-sooner:
	case <-timer.C:
	}
	return true
}

// update fetches the keys. It keeps those that it has if the issuer does not answer, logs what is wrong once, and
// returns it.
func (k *keySet) update(ctx context.Context, complaint string) string {
	keys, err := k.issuer.fetch(ctx, k.client)
	if ctx.Err() != nil {
		return complaint
	}
	log := klog.FromContext(ctx).WithValues("issuer", k.issuer.url)
	now := ""
	if err != nil {
		now = err.Error()
		keyFetches.WithLabelValues(k.issuer.url, "failure").Inc()
	} else {
		k.keys.Store(&keys)
		keyFetches.WithLabelValues(k.issuer.url, "success").Inc()
	}
	switch {
	case now != "" && complaint == "":
		log.Error(err, "The keys of an issuer of tokens cannot be fetched: those that are known stay in force, tokens of others are refused", "known", k.keys.Load() != nil)
	case now == "" && complaint != "":
		log.Info("The keys of an issuer of tokens can be fetched again", "keys", len(keys))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.next)
	k.next = make(chan struct{})
	return now
}

// VerifySignature implements go-oidc's KeySet. If nobody knows the key, it waits for the issuer to be asked.
func (k *keySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	hash := sha256.Sum256([]byte(token))
	if found, ok := k.verdicts.Get(hash); ok && found.(verdict).by == k.keys.Load() {
		return found.(verdict).payload, nil
	}
	payload, by, err := k.verifySignature(ctx, token)
	if err == nil {
		k.verdicts.Add(hash, verdict{payload, by})
	}
	return payload, err
}

// rememberedTokens is how many tokens of an issuer are remembered.
const rememberedTokens = 1024

// verdict is the payload of a token that one of the keys has signed. It counts for as long as these are the keys that
// are known. When the token expires, and what its claims are worth, is found out with each request.
type verdict struct {
	payload []byte
	by      *[]jose.JSONWebKey
}

func (k *keySet) verifySignature(ctx context.Context, token string) (payload []byte, by *[]jose.JSONWebKey, _ error) {
	signature, err := jose.ParseSigned(token)
	if err != nil {
		return nil, nil, fmt.Errorf("malformed token: %w", err)
	}
	if len(signature.Signatures) != 1 {
		return nil, nil, errors.New("the token must have one signature")
	}
	by = k.keys.Load()
	payload, err = verify(signature, by)
	if errors.Is(err, errNoKey) {
		if err := k.await(ctx); err != nil {
			return nil, nil, err
		}
		by = k.keys.Load()
		payload, err = verify(signature, by)
	}
	if err != nil {
		return nil, nil, err
	}
	return payload, by, k.checkClaims(payload)
}

var errNoKey = errors.New("the issuer has no key that has signed this token")

// verify returns the payload of a token that one of the keys has signed. Without a key's id in the token any may have.
func verify(signature *jose.JSONWebSignature, keys *[]jose.JSONWebKey) ([]byte, error) {
	if keys == nil {
		return nil, errNoKey
	}
	id := signature.Signatures[0].Header.KeyID
	for _, key := range *keys {
		if id != "" && key.KeyID != id {
			continue
		}
		payload, err := signature.Verify(&key)
		if err == nil {
			return payload, nil
		}
		if id != "" {
			return nil, fmt.Errorf("the token's signature is not of the issuer's key %q: %w", id, err)
		}
	}
	return nil, errNoKey
}

// await asks for the keys and waits until they have been fetched, successfully or not. It bounds how many tokens wait:
// anybody can make up keys.
func (k *keySet) await(ctx context.Context) error {
	k.mu.Lock()
	if k.waiting >= maxWaiting {
		k.mu.Unlock()
		return fmt.Errorf("%w, and too many tokens wait for the issuer's keys", errNoKey)
	}
	k.waiting++
	next := k.next
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.waiting--
	}()
	select {
	case k.hurry <- struct{}{}:
	default:
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-next:
		return nil
	case <-k.end:
		return nil
	case <-late.C:
		return fmt.Errorf("%w, and the issuer does not answer", errNoKey)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// checkClaims refuses tokens that say where their groups are, and do not have them. Upstream would ask there, with
// goroutines that nobody joins.
func (k *keySet) checkClaims(payload []byte) error {
	var claims struct {
		Elsewhere map[string]string `json:"_claim_names"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return fmt.Errorf("cannot read the token's claims: %w", err)
	}
	if _, elsewhere := claims.Elsewhere[k.groups]; elsewhere && k.groups != "" {
		return fmt.Errorf("claim %q is not in the token but elsewhere (_claim_names), and is not asked for there: have the issuer put it into its tokens", k.groups)
	}
	return nil
}

// keysOf returns the keys that are known of an issuer, nil if none are.
func (i *issuers) keysOf(of issuer) *[]jose.JSONWebKey {
	if i == nil {
		return nil
	}
	for _, k := range i.keys {
		if k.issuer == of {
			return k.keys.Load()
		}
	}
	return nil
}
