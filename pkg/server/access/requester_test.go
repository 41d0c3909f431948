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

// Limits count who has sent a request. Two of one name are two, if nobody but their clusters tells them apart; and all
// that a cluster makes up are one.
func TestLimitsCountWhoHasSentTheRequest(t *testing.T) {
	account := func(cluster, name string) user.Info {
		return &user.DefaultInfo{Name: "system:serviceaccount:default:" + name, Extra: map[string][]string{clusters.IdentityClusterExtra: {cluster}}}
	}
	ann, ben := &user.DefaultInfo{Name: "ann"}, &user.DefaultInfo{Name: "ben"}
	master := &user.DefaultInfo{Name: "portal", Groups: []string{user.SystemPrivilegedGroup}}
	for name, c := range map[string]struct {
		sender, as   user.Info
		user, person string
	}{
		"nobody has noted who":                  {nil, ann, "ann", "ann"},
		"nobody":                                {nil, nil, "", ""},
		"a user":                                {ann, ann, "ann", "ann"},
		"one who impersonates another":          {ann, ben, "ann", "ann"},
		"one who may do everything vouches":     {master, ben, "ben", "ben"},
		"an account":                            {account("a", "x"), account("a", "x"), "(accounts of a) system:serviceaccount:default:x", "(accounts of a)"},
		"another account of the same cluster":   {account("a", "y"), account("a", "y"), "(accounts of a) system:serviceaccount:default:y", "(accounts of a)"},
		"the same name in another cluster":      {account("b", "x"), account("b", "x"), "(accounts of b) system:serviceaccount:default:x", "(accounts of b)"},
		"one who is called like accounts":       {&user.DefaultInfo{Name: "(accounts of a)"}, ann, "(user) (accounts of a)", "(user) (accounts of a)"},
		"an account that impersonates somebody": {account("a", "x"), ann, "(accounts of a) system:serviceaccount:default:x", "(accounts of a)"},
	} {
		var sender requester
		if c.sender != nil {
			sender.who.Store(&c.sender)
		}
		ctx := context.WithValue(t.Context(), requesterKey{}, &sender)
		if gotUser, gotPerson := CountedAs(ctx, c.as); gotUser != c.user || gotPerson != c.person {
			t.Errorf("%s: %q and %q, want %q and %q", name, gotUser, gotPerson, c.user, c.person)
		}
	}
}

// A front learns for whom a token counts from whatever a shard answers, and nobody else is told who a sender is.
func TestASenderIsToldForWhomItCounts(t *testing.T) {
	ann := &user.DefaultInfo{Name: "änn\n"}
	for name, c := range map[string]struct {
		asks   bool
		who    user.Info
		answer func(http.ResponseWriter)
		want   string
	}{
		"an answer":         {true, ann, func(w http.ResponseWriter) { _, _ = w.Write([]byte("ok")) }, "%C3%A4nn%0A"},
		"an error":          {true, ann, func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) }, "%C3%A4nn%0A"},
		"one that is early": {true, ann, func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints); w.WriteHeader(http.StatusOK) }, "%C3%A4nn%0A"},
		"who is nobody":     {true, nil, func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) }, ""},
		"who does not ask":  {false, ann, func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) }, ""},
		"whom the handler names": {true, ann, func(w http.ResponseWriter) {
			w.Header().Set(clusters.CountedAsHeader, "eve")
			w.WriteHeader(http.StatusOK)
		}, "%C3%A4nn%0A"},
		"a watch, which has no body": {true, ann, func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK); _ = http.NewResponseController(w).Flush() }, "%C3%A4nn%0A"},
	} {
		handler := WithRequester(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			_, _, _ = Remembering(authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
				return &authenticator.Response{User: c.who}, c.who != nil, nil
			})).AuthenticateRequest(req)
			c.answer(w)
		}))
		server := httptest.NewServer(handler)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.asks {
			req.Header.Set(clusters.CountedAsHeader, "?")
		}
		got, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = got.Body.Close()
		if told := got.Header.Get(clusters.CountedAsHeader); told != c.want {
			t.Errorf("%s: %q, want %q", name, told, c.want)
		}
		server.Close()
	}
}
