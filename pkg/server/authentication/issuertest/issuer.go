// Package issuertest is an OpenID Connect issuer for tests: discovery, keys that can be rotated and withdrawn, and
// tokens with any claims.
package issuertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"

	jose "gopkg.in/go-jose/go-jose.v2"
)

// Issuer is an http.Handler. It must be reachable at URL, by https. It makes its first key when it is needed.
type Issuer struct {
	URL string

	mu      sync.Mutex
	made    int
	keys    []jose.JSONWebKey // the last one signs
	fetches int
	down    bool
}

// ServeHTTP answers the discovery document and the public keys.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.first()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case i.down:
		http.Error(w, "down", http.StatusServiceUnavailable)
	case req.URL.Path == "/.well-known/openid-configuration":
		answer(w, map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys"})
	case req.URL.Path == "/keys":
		i.fetches++
		set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
		for _, key := range i.keys {
			set.Keys = append(set.Keys, key.Public())
		}
		answer(w, set)
	default:
		http.NotFound(w, req)
	}
}

func answer(w http.ResponseWriter, body any) {
	if err := json.NewEncoder(w).Encode(body); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func (i *Issuer) first() {
	if i.made == 0 {
		i.add()
	}
}

func (i *Issuer) add() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // there is no randomness
	}
	i.made++
	i.keys = append(i.keys, jose.JSONWebKey{Key: key, KeyID: "key-" + strconv.Itoa(i.made), Algorithm: string(jose.ES256), Use: "sig"})
}

// Rotate makes a new key, which signs from now on. The old ones stay.
func (i *Issuer) Rotate() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.first()
	i.add()
}

// Withdraw takes back all keys but the last one.
func (i *Issuer) Withdraw() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.first()
	i.keys = i.keys[len(i.keys)-1:]
}

// SetDown says whether the issuer refuses to answer.
func (i *Issuer) SetDown(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

// Fetches returns how often the keys were asked for.
func (i *Issuer) Fetches() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetches
}

// Token returns a signed token with the claims, and with the issuer's own URL unless they name another.
func (i *Issuer) Token(claims map[string]any) (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.first()
	return Sign(i.keys[len(i.keys)-1], i.URL, claims)
}

// Keys returns the private keys.
func (i *Issuer) Keys() []jose.JSONWebKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.first()
	return slices.Clone(i.keys)
}

// Sign returns a token of any key.
func Sign(key jose.JSONWebKey, issuer string, claims map[string]any) (string, error) {
	all := map[string]any{"iss": issuer}
	for name, value := range claims {
		all[name] = value
	}
	payload, err := json.Marshal(all)
	if err != nil {
		return "", fmt.Errorf("cannot encode the claims: %w", err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(key.Algorithm), Key: key}, nil)
	if err != nil {
		return "", fmt.Errorf("cannot sign with key %s: %w", key.KeyID, err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", fmt.Errorf("cannot sign with key %s: %w", key.KeyID, err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		return "", fmt.Errorf("cannot encode the token: %w", err)
	}
	return token, nil
}
