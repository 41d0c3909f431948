package edge

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server/apis"
	"github.com/regent-project/regent/pkg/server/identity"
)

// as is a request by a user for a verb.
func as(ctx context.Context, name, verb string) context.Context {
	ctx = request.WithUser(ctx, &user.DefaultInfo{Name: name})
	return request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: verb, Resource: "configmaps"})
}

func TestARequestsTokenIsInItsContext(t *testing.T) {
	sound := fence.Token{Cluster: "system:admin", Namespace: "kube-system", Name: "l", UID: "u", Holder: "h", Epoch: 1}
	header, err := sound.HeaderValue()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		headers []string
		code    int
		token   fence.Token
	}{
		"none":      {nil, http.StatusOK, fence.Token{}},
		"one":       {[]string{header}, http.StatusOK, sound},
		"two":       {[]string{header, header}, http.StatusBadRequest, fence.Token{}},
		"malformed": {[]string{"epoch=1"}, http.StatusBadRequest, fence.Token{}},
		"of a server without logical clusters": {
			[]string{`cluster="", lease="kube-system/l", uid="u", holder="h", epoch=1`}, http.StatusBadRequest, fence.Token{},
		},
		"empty": {[]string{""}, http.StatusBadRequest, fence.Token{}},
	} {
		t.Run(name, func(t *testing.T) {
			var got fence.Token
			filter := newTokenFilter(true, FencingEnforce, nil, nil, apis.Codecs)
			handler := filter.wrap(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { got = fence.From(req.Context()) }))
			req := httptest.NewRequestWithContext(as(t.Context(), "someone", "create"), http.MethodPost, "/api", nil)
			for _, h := range c.headers {
				req.Header.Add(fence.Header, h)
			}
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, req)
			if answer.Code != c.code || got != c.token {
				t.Errorf("%d %s, token %v", answer.Code, answer.Body, got)
			}
			if c.code != http.StatusOK && !strings.Contains(answer.Body.String(), fence.Header) {
				t.Errorf("the answer does not name the header: %s", answer.Body)
			}
		})
	}
}

func TestALeadersWriteNeedsAToken(t *testing.T) {
	for _, c := range []struct {
		user, verb string
		election   bool
		mode       Fencing
		refused    bool
	}{
		{identity.LeaderUser, "create", true, "", true},
		{identity.LeaderUser, "create", true, FencingEnforce, true},
		{identity.LeaderUser, "update", true, FencingEnforce, true},
		{identity.LeaderUser, "patch", true, FencingEnforce, true},
		{identity.LeaderUser, "delete", true, FencingEnforce, true},
		{identity.LeaderUser, "deletecollection", true, FencingEnforce, true},
		{identity.LeaderUser, "create", true, FencingWarn, false},
		{identity.LeaderUser, "create", false, FencingEnforce, false},
		{identity.LeaderUser, "get", true, FencingEnforce, false},
		{identity.LeaderUser, "list", true, FencingEnforce, false},
		{identity.LeaderUser, "watch", true, FencingEnforce, false},
		{identity.ReplicaUser, "create", true, FencingEnforce, false},
		{"someone", "create", true, FencingEnforce, false},
	} {
		served := false
		filter := newTokenFilter(c.election, c.mode, nil, nil, apis.Codecs)
		handler := filter.wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true }))
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(as(t.Context(), c.user, c.verb), http.MethodPost, "/api", nil))
		if c.refused != (answer.Code == http.StatusPreconditionFailed) || c.refused == served {
			t.Errorf("%+v: %d, served %t", c, answer.Code, served)
		}
		if c.refused && !strings.Contains(answer.Body.String(), string(fence.Reason)) {
			t.Errorf("%+v: %s", c, answer.Body)
		}
	}
}
