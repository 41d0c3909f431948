package identity

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/authentication"
	"github.com/regent-project/regent/pkg/server/authentication/issuertest"
	"github.com/regent-project/regent/pkg/server/pki"
)

// An issuer that may name anybody it likes still does not name the server's own users, and its users cannot speak for
// others.
func TestNoIssuerNamesTheServersOwnUsers(t *testing.T) {
	issuer := &issuertest.Issuer{}
	server := httptest.NewTLSServer(issuer)
	defer server.Close()
	issuer.URL = server.URL
	authority := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	directory := t.TempDir()
	configured, err := authentication.New(authentication.Config{PublicPaths: PublicPaths, File: write(t, filepath.Join(directory, "authentication.yaml"), fmt.Sprintf(`
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: %q, audiences: [regent], certificateAuthority: %q}
  claimMappings: {username: {expression: claims.sub}, groups: {expression: claims.groups}}
`, issuer.URL, authority))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); configured.Run(ctx) }()
	defer func() { cancel(); <-ended }()

	bundle, err := pki.Ensure(filepath.Join(directory, "pki"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := dynamiccertificates.NewStaticCAContent("test", bundle.CAPEM)
	if err != nil {
		t.Fatal(err)
	}
	known, _, err := newAuthenticator(newInProcess(), &members{authorities: ca, root: "root", late: &late{}}, ca, noAccounts{}, "", configured)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, group string
		refused     string
	}{
		{"ann", "dev", ""},
		{"ann", user.SystemPrivilegedGroup, ""},
		{LeaderUser, user.SystemPrivilegedGroup, "server's own"},
		{"ann", ReservedPrefix + "shards", "server's own"},
		{"system:serviceaccount:default:robot", "dev", "service accounts"},
	} {
		token, err := issuer.Token(map[string]any{"aud": "regent", "sub": c.name, "groups": []string{c.group}, "exp": time.Now().Add(time.Hour).Unix()})
		if err != nil {
			t.Fatal(err)
		}
		req := httptest.NewRequest(http.MethodGet, "/api", nil)
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set(clusters.RemoteUserHeader, "eve")
		req.Header.Set(clusters.RemoteGroupHeader, user.SystemPrivilegedGroup)
		resp, ok, err := known.AuthenticateRequest(req)
		if c.refused != "" {
			if ok || err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s of %s: %t, %v; want an error about %s", c.name, c.group, ok, err, c.refused)
			}
			continue
		}
		if err != nil || !ok || resp.User.GetName() != c.name || fmt.Sprint(resp.User.GetGroups()) != fmt.Sprint([]string{c.group, user.AllAuthenticated}) {
			t.Errorf("%s of %s: %v, %t, %v", c.name, c.group, resp, ok, err)
		}
	}
}
