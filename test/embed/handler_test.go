package embed

import (
	"context"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/regent-project/regent/pkg/election/etcdfence"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/test/etcdtest"
)

const path = "/apis/wardle.example.com/v1alpha1/namespaces/default/flunders"

// send sends a request by hand, and returns the code and the body of the answer.
func (w *world) send(t *testing.T, method, path, as string, tokens ...string) (int, string) {
	t.Helper()
	var body *strings.Reader
	if method == http.MethodPost {
		body = strings.NewReader(`{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"generateName":"x-"}}`)
	} else {
		body = strings.NewReader("")
	}
	req, err := http.NewRequestWithContext(t.Context(), method, w.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("As", as)
	for _, token := range tokens {
		req.Header.Add(fence.Header, token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text := new(strings.Builder)
	if err := resp.Write(text); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, text.String()
}

func header(t *testing.T, token fence.Token) string {
	t.Helper()
	text, err := token.HeaderValue()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestAHeaderThatSaysNothingIsRefused(t *testing.T) {
	w := newWorld(t)
	token := w.take("me")
	sound, elsewhere, unknown := header(t, token), token, token
	elsewhere.Cluster, unknown.Name = "root", "nobody"
	for name, c := range map[string]struct {
		headers []string
		code    int
	}{
		"none":                           {nil, http.StatusCreated},
		"sound":                          {[]string{sound}, http.StatusCreated},
		"twice":                          {[]string{sound, sound}, http.StatusBadRequest},
		"empty":                          {[]string{""}, http.StatusBadRequest},
		"malformed":                      {[]string{"epoch=1"}, http.StatusBadRequest},
		"of a server with other Leases":  {[]string{header(t, elsewhere)}, http.StatusBadRequest},
		"of a Lease that does not exist": {[]string{header(t, unknown)}, http.StatusPreconditionFailed},
	} {
		before, keys := w.content()
		code, answer := w.send(t, http.MethodPost, path, "somebody", c.headers...)
		after, keysAfter := w.content()
		if code != c.code || (before != after || keys != keysAfter) != (code == http.StatusCreated) {
			t.Errorf("%s: %d, written: %t: %s", name, code, before != after, answer)
		}
		if code == http.StatusBadRequest && !strings.Contains(answer, fence.Header) {
			t.Errorf("%s: the answer does not name the header: %s", name, answer)
		}
	}
}

func TestReadsAreServedInATermThatIsOver(t *testing.T) {
	w := newWorld(t)
	token := w.take("me")
	w.take("another")
	if code, answer := w.send(t, http.MethodGet, path, "me", header(t, token)); code != http.StatusOK {
		t.Errorf("%d: %s", code, answer)
	}
}

func TestWhoMustCarryATokenMayNotWriteWithout(t *testing.T) {
	w := newWorld(t, func(c *etcdfence.Config) {
		c.MustCarry = func(u user.Info) bool { return u.GetName() == "user-leader" }
	})
	token := header(t, w.take("me"))
	for _, c := range []struct {
		as, method string
		tokens     []string
		code       int
	}{
		{"leader", http.MethodPost, nil, http.StatusPreconditionFailed},
		{"leader", http.MethodDelete, nil, http.StatusPreconditionFailed},
		{"leader", http.MethodGet, nil, http.StatusOK},
		{"leader", http.MethodPost, []string{token}, http.StatusCreated},
		{"somebody", http.MethodPost, nil, http.StatusCreated},
	} {
		code, answer := w.send(t, c.method, path, c.as, c.tokens...)
		if code != c.code || code == http.StatusPreconditionFailed && !strings.Contains(answer, string(fence.MissingToken)) {
			t.Errorf("%s by %s: %d: %s", c.method, c.as, code, answer)
		}
	}
	// By Leases it becomes a leader. (This server has none, and says so.)
	const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
	for _, c := range []struct {
		method, path string
		held         bool
	}{
		{http.MethodPost, leases, false},
		{http.MethodPut, leases + "/example", false},
		{http.MethodDelete, leases + "/example", false},
		{http.MethodDelete, leases, true}, // all of them
		{http.MethodPatch, leases + "/example", true},
	} {
		code, answer := w.send(t, c.method, c.path, "leader")
		if held := code == http.StatusPreconditionFailed; held != c.held {
			t.Errorf("%s %s: %d: %s", c.method, c.path, code, answer)
		}
	}
}

// Only who may get the Lease is told what it shows.
func TestARefusalTellsOnlyWhoMayGetTheLease(t *testing.T) {
	may := false
	var asked fence.Token
	w := newWorld(t, func(c *etcdfence.Config) {
		c.MayGet = func(_ context.Context, of fence.Token) bool { asked = of; return may }
	})
	token := w.take("me")
	w.take("secret")
	for _, may = range []bool{true, false} {
		code, answer := w.send(t, http.MethodPost, path, "somebody", header(t, token))
		if code != http.StatusPreconditionFailed || !strings.Contains(answer, string(fence.Reason)) || strings.Contains(answer, "secret") != may {
			t.Errorf("may get it: %t: %d %s", may, code, answer)
		}
		if asked != token {
			t.Errorf("asked for %v", asked)
		}
	}
}

// What has another etcd is told of, and a token is at least looked at before.
func TestAnotherEtcdIsNotHeldAndToldOf(t *testing.T) {
	w := newWorld(t, func(c *etcdfence.Config) {
		c.Etcd.EtcdServersOverrides = []string{"/events#http://127.0.0.1:1;http://127.0.0.1:2"}
		c.Etcd.SkipHealthEndpoints = true
	})
	if apart := w.guard.NotHeld(); len(apart) != 1 || !strings.Contains(apart[0], "/events") {
		t.Errorf("told of %v", apart)
	}
	token := w.take("me")
	other := &world{t: t, way: etcdtest.Start(t)}
	config := genericConfig(t, etcdOptions(other.way))
	config.BuildHandlerChainFunc = w.handlers()
	other.url = serve(t, config)
	if apart := w.guard.NotHeld(); len(apart) != 2 || !strings.Contains(apart[1], other.way.ServerList[0]) {
		t.Errorf("told of %v, want %v among it", apart, other.way.ServerList)
	}
	create := func() error {
		_, err := other.as(token).WardleV1alpha1().Flunders("default").Create(t.Context(), flunder("x", ""), metav1.CreateOptions{})
		return err
	}
	if err := create(); err != nil {
		t.Error(err)
	}
	w.take("another")
	if err := create(); !fence.IsFenced(err) {
		t.Errorf("in a term that is over: %v", err)
	}
}
