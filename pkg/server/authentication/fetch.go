package authentication

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	jose "gopkg.in/go-jose/go-jose.v2"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/util/cert"

	"github.com/regent-project/regent/pkg/server/fetch"
)

const (
	// fetchTimeout bounds each of the two requests for an issuer's keys.
	fetchTimeout = 10 * time.Second
	// maxAnswer is how long an issuer's answer may be, in bytes.
	maxAnswer = 1 << 20
)

// issuer says where the keys of an issuer are. Issuers that are equal have the same keys.
type issuer struct {
	// url is what tokens and the discovery document name. discoveryURL says where the document is, if it is not at
	// the usual place.
	url, discoveryURL string
	// authority holds the certificates (PEM) that vouch for the issuer's. Empty: the host's.
	authority string
}

// client returns a client whose connections end with each request, so that nobody has to close them.
func (i issuer) client() (*http.Client, error) {
	var roots *x509.CertPool // nil: the host's
	if i.authority != "" {
		var err error
		if roots, err = cert.NewPoolFromBytes([]byte(i.authority)); err != nil {
			return nil, fmt.Errorf("the certificateAuthority of issuer %s is not usable: %w", i.url, err)
		}
	}
	transport := utilnet.SetTransportDefaults(&http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	})
	return &http.Client{Transport: transport, Timeout: fetchTimeout}, nil
}

// fetch asks the issuer for its keys.
func (i issuer) fetch(ctx context.Context, client *http.Client) ([]jose.JSONWebKey, error) {
	at := i.discoveryURL
	if at == "" {
		at = strings.TrimSuffix(i.url, "/") + "/.well-known/openid-configuration"
	}
	var found struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := get(ctx, client, at, &found); err != nil {
		return nil, err
	}
	if found.Issuer != i.url {
		return nil, fmt.Errorf("%s is of issuer %q, not of %q", at, found.Issuer, i.url)
	}
	if u, err := url.Parse(found.Keys); err != nil || u.Scheme != "https" {
		return nil, fmt.Errorf("%s says that the keys are at %q, which is no https URL", at, found.Keys)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := get(ctx, client, found.Keys, &set); err != nil {
		return nil, err
	}
	return parseKeys(set.Keys)
}

// parseKeys leaves out keys of kinds that nobody here can verify with.
func parseKeys(raw []json.RawMessage) ([]jose.JSONWebKey, error) {
	var keys []jose.JSONWebKey
	var errs []error
	for _, r := range raw {
		var key jose.JSONWebKey
		if err := json.Unmarshal(r, &key); err != nil {
			errs = append(errs, err)
			continue
		}
		if key.IsPublic() && key.Valid() && key.Use != "enc" {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 && len(errs) > 0 {
		return nil, fmt.Errorf("none of the issuer's keys is usable: %w", errors.Join(errs...))
	}
	return keys, nil
}

func get(ctx context.Context, client *http.Client, from string, into any) error {
	answer, err := fetch.Get(ctx, client.Do, from, maxAnswer)
	if err == nil {
		err = answer.Decode(into)
	}
	if err != nil {
		return fmt.Errorf("cannot ask the issuer for %s: %w", from, err)
	}
	return nil
}
