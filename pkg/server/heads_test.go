package server

import (
	"net/http"
	"strings"
	"testing"
)

// A tenant may open thousands of watches. What each keeps, and what each costs whoever writes, must not be the tenant's
// to choose.
func TestSelectorsAndWatchesAreNoLargerThanTheyMay(t *testing.T) {
	r := startWithNeighbours(t)
	terms := func(n int) string { return "labelSelector=" + strings.TrimSuffix(strings.Repeat("!a,", n), ",") }
	const configMaps = "/clusters/own/api/v1/configmaps"
	for name, c := range map[string]struct {
		path   string
		header int // bytes
		want   int
	}{
		"a list with few terms":          {configMaps + "?" + terms(100), 10, http.StatusOK},
		"a list with many terms":         {configMaps + "?" + terms(10_000), 10, http.StatusRequestURITooLong},
		"a watch with many terms":        {configMaps + "?watch=true&timeoutSeconds=1&" + terms(10_000), 10, http.StatusRequestURITooLong},
		"a list with a long header":      {configMaps, 200_000, http.StatusOK},
		"a watch with a long header":     {configMaps + "?watch=true&timeoutSeconds=1", 200_000, http.StatusRequestHeaderFieldsTooLarge},
		"a watch with a header":          {configMaps + "?watch=true&timeoutSeconds=1", 10_000, http.StatusOK},
		"many terms in another's":        {strings.Replace(configMaps, "own", "other", 1) + "?" + terms(8_000), 10, http.StatusForbidden},
		"a URL that is too long":         {strings.Replace(configMaps, "own", "other", 1) + "?" + terms(12_000), 10, http.StatusRequestURITooLong},
		"a watch by path, with its head": {strings.Replace(configMaps, "v1/", "v1/watch/", 1) + "?timeoutSeconds=1", 200_000, http.StatusRequestHeaderFieldsTooLarge},
	} {
		if got := r.askWith(t, http.MethodGet, c.path, "t-eve", http.Header{"X-Filler": {strings.Repeat("x", c.header)}}); got.status != c.want {
			t.Errorf("%s: %d %.200s, want %d", name, got.status, got.body, c.want)
		}
	}
}

// Reviews take what they are about from their bodies, of up to three megabytes. A group for each binding to find, each
// with as many groups to compare, took hours of a CPU.
func TestAReviewAboutManyGroupsEnds(t *testing.T) {
	r := startWithNeighbours(t)
	var subjects, groups []string
	for n := range 5000 {
		subjects = append(subjects, `{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"absent-`+strings.Repeat("x", n%7)+`"}`)
	}
	subjects = append(subjects, `{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"a"}`)
	r.send(t, http.MethodPost, "own", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		`{"metadata":{"name":"many"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"system:kcp:workspace:access"},"subjects":[`+strings.Join(subjects, ",")+`]}`)
	for range 200_000 {
		groups = append(groups, `"a"`)
	}
	got := r.post(t, "own", "/apis/authorization.k8s.io/v1/subjectaccessreviews", "t-eve", `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"x","groups":[`+
		strings.Join(groups, ",")+`],"resourceAttributes":{"verb":"get","resource":"configmaps"}}}`)
	if got.status != http.StatusCreated || !strings.Contains(got.body, `"allowed":false`) {
		t.Errorf("%d %.300s", got.status, got.body)
	}
}

// A user can have replicas remember what they ask for in tokens: thousands of them.
func TestTokensAreNoLargerThanTheyMay(t *testing.T) {
	r := startWithNeighbours(t)
	r.send(t, http.MethodPost, "own", "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"bot"}}`)
	ask := func(audience string) answer {
		return r.post(t, "own", "/api/v1/namespaces/default/serviceaccounts/bot/token", "t-eve", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"audiences":["`+audience+`"]}}`)
	}
	if got := ask(strings.Repeat("a", 2000)); got.status != http.StatusCreated {
		t.Errorf("a long audience: %d %.300s", got.status, got.body)
	}
	if got := ask(strings.Repeat("a", 1<<20)); got.status != http.StatusUnprocessableEntity {
		t.Errorf("an audience of a megabyte: %d %.300s", got.status, got.body)
	}
}

// post sends JSON as somebody.
func (r *replica) post(t testing.TB, cluster, path, bearer, body string) answer {
	t.Helper()
	return r.write(t, http.MethodPost, "/clusters/"+cluster+path, bearer, "application/json", body)
}

// write sends a body as somebody.
func (r *replica) write(t testing.TB, method, path, bearer, contentType, body string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	req.Header.Set("Content-Type", contentType)
	return r.do(t, req)
}
