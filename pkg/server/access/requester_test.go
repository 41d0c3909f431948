package access

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/regent-project/regent/pkg/clusters"
)

func TestElsewhereTheSenderNeedsTheRightToo(t *testing.T) {
	holds := map[string]bool{"ann in there": true, "ann in here": true, "boss in there": true}
	elsewhere := Elsewhere(authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		cluster, _ := clusters.From(ctx)
		if holds[a.GetUser().GetName()+" in "+cluster.String()] {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}))
	for _, c := range []struct {
		sender, as string
		cluster    logicalcluster.Name
		want       bool
	}{
		{"ann", "ann", "there", true},
		{"eve", "eve", "there", false},
		{"eve", "ann", "there", false},
		{"eve", "ann", "here", true}, // where somebody has let eve impersonate ann
		{"boss", "ann", "there", true},
		{"boss", "eve", "there", false}, // who looks what eve may do
		{"", "ann", "there", false},
		{"", "ann", "here", true},
	} {
		handler := WithRequester(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			var sender user.Info
			for _, name := range []string{c.sender, "a token that the request asks about"} {
				found, ok, err := Remembering(authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
					return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, name != "", nil
				})).AuthenticateRequest(req)
				if err != nil {
					t.Fatal(err)
				}
				if c.sender == "" {
					break
				}
				if ok && sender == nil {
					sender = found.User
				}
			}
			who := sender
			if c.as != c.sender {
				who = &user.DefaultInfo{Name: c.as}
			}
			got, err := elsewhere(clusters.With(req.Context(), "here"), c.cluster, authorizer.AttributesRecord{User: who})
			if err != nil || got != c.want {
				t.Errorf("%q as %q in %s: %v, %v, want %v", c.sender, c.as, c.cluster, got, err, c.want)
			}
		}))
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	}
}
