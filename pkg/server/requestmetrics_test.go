package server

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// Tenants choose the names of custom resources. A replica that kept a series for each name would need more and more memory.
func TestNoMetricHasNamesThatTenantsChoose(t *testing.T) {
	r := startWithNeighbours(t)
	const plural, version, objects = "zebrathings", "v7zebra", "/apis/zebra-group.example.com/v7zebra/namespaces/default/zebrathings"
	text := strings.NewReplacer("example.com", "zebra-group.example.com", `"v1","served"`, `"`+version+`","served"`).Replace(badDefinition(plural, `{"type":"object"}`))
	if code, answer := r.try(t.Context(), http.MethodPost, "own", crdsPath, text); code != http.StatusCreated {
		t.Fatal(code, answer)
	}
	r.establish(t, "own", plural+".zebra-group.example.com", plural)
	for _, object := range []string{"one", "two"} {
		body := `{"apiVersion":"zebra-group.example.com/v7zebra","kind":"K` + plural + `","metadata":{"name":"` + object + `"}}`
		if code, answer := r.try(t.Context(), http.MethodPost, "own", objects, body); code != http.StatusCreated {
			t.Fatal(code, answer)
		}
	}
	for method, path := range map[string]string{http.MethodGet: objects + "/one", http.MethodDelete: objects + "/one", http.MethodHead: objects, http.MethodPut: objects + "/two"} {
		r.try(t.Context(), method, "own", path, "")
	}
	r.try(t.Context(), http.MethodGet, "own", objects, "")
	soon, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	r.try(soon, http.MethodGet, "own", objects+"?watch=true&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "")

	body := r.ask(t, http.MethodGet, "/metrics", "t-root").body
	lines := strings.Split(body, "\n")
	named := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.Contains(line, "zebra") })
	for n, line := range named {
		named[n], _, _ = strings.Cut(line, "{")
	}
	if named = slices.Compact(named); len(named) > 0 {
		t.Errorf("series with names of a tenant: %v", named)
	}
	together := func(line string) bool {
		return strings.HasPrefix(line, "apiserver_request_total") && strings.Contains(line, `group="unexpected",resource="unexpected"`) && strings.Contains(line, `verb="POST"`)
	}
	if !slices.ContainsFunc(lines, together) {
		t.Error("the requests are not counted")
	}
	if !strings.Contains(body, `resource="configmaps"`) {
		t.Error("what is built in is not told by its names")
	}
}
