package authentication

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
)

// issuers is what one content of the file says.
type issuers struct {
	tokens, anonymous authenticator.Request
	keys              []*keySet
}

// newIssuers makes authenticators of a configuration. Keys that the previous one knows are taken over: a change of the
// file makes no token wait whose issuer stays as it was.
func newIssuers(config *apiserver.AuthenticationConfiguration, compiler authenticationcel.Compiler, public []string, previous *issuers) (*issuers, error) {
	made := &issuers{tokens: nobody, anonymous: anonymousUsers(config.Anonymous, public)}
	var tokens []authenticator.Token
	for i, jwt := range config.JWT {
		keys, err := newKeySet(issuer{jwt.Issuer.URL, jwt.Issuer.DiscoveryURL, jwt.Issuer.CertificateAuthority}, jwt.ClaimMappings.Groups.Claim)
		if err != nil {
			return nil, fmt.Errorf("jwt[%d]: %w", i, err)
		}
		keys.keys.Store(previous.keysOf(keys.issuer))
		jwt.Issuer.DiscoveryURL = "" // our keys know it, and upstream takes one or the other
		// With keys, upstream starts nothing and asks nobody. So its context needs no end.
		token, err := oidc.New(context.Background(), oidc.Options{
			JWTAuthenticator: jwt, KeySet: keys, Compiler: compiler, SupportedSigningAlgs: oidc.AllValidSigningAlgorithms(), Client: nowhere,
		})
		if err != nil {
			return nil, fmt.Errorf("jwt[%d]: %w", i, err)
		}
		tokens = append(tokens, strangers{token})
		made.keys = append(made.keys, keys)
	}
	if len(tokens) > 0 {
		made.tokens = bearertoken.New(tokenunion.New(tokens...))
	}
	return made, nil
}

// work keeps the keys of all issuers up to date until ctx ends.
func (i *issuers) work(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, keys := range i.keys {
		running.Go(func() { keys.Run(ctx) })
	}
}

// anonymousUsers lets anybody in where the file says so.
func anonymousUsers(config *apiserver.AnonymousAuthConfig, public []string) authenticator.Request {
	where := conditions(config, public)
	if len(where) == 0 {
		return nobody // upstream's would let in everywhere
	}
	return anonymous.NewAuthenticator(where)
}

// nobody lets nobody in.
var nobody = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) { return nil, false, nil })

// nowhere is the client of code that should ask nobody.
var nowhere = &http.Client{Transport: refusal{}}

type refusal struct{}

// RoundTrip implements http.RoundTripper.
func (refusal) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("this server asks issuers for their keys, and for nothing else")
}
