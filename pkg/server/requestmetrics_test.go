package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// Tenants choose the names of custom resources. A replica that kept a series for each name would need more and more
// memory.
func TestNoMetricHasNamesThatTenantsChoose(t *testing.T) {
	r := startWithNeighbours(t)
	const plural, version, objects = "zebrathings", "v7zebra", "/apis/zebra-group.example.com/v7zebra/namespaces/default/zebrathings"
	text := strings.NewReplacer("example.com", "zebra-group.example.com", `"v1","served"`, `"`+version+`","deprecated":true,"served"`).Replace(badDefinition(plural, `{"type":"object"}`))
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

	hostile := func(round int) int {
		name := fmt.Sprintf("zebra%d%s", round, strings.Repeat("z", 3000))
		for _, path := range []string{
			objects + "/one/" + name, objects + "/one/status/" + name, "/api/v1/namespaces/default/configmaps/x/" + name, "/api/v1/namespaces/" + name + "/configmaps/x/" + name + "/" + name,
			"/api/v1/" + name, "/api/" + name + "/configmaps", "/apis/" + name + "/v1/things", "/apis/rbac.authorization.k8s.io/v1/clusterroles/x/" + name, "/" + name,
			"/api/v1/watch/" + name, "/api/v1/proxy/" + name, "/api/v1/configmaps?dryRun=" + name, "/api/v1/configmaps?timeoutSeconds=1&watch=" + name, "/api/v1/configmaps?fieldSelector=" + name,
			"/apis/" + name + "/" + name + "/namespaces/" + name + "/" + name + "/" + name + "/" + name,
		} {
			for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete, http.MethodOptions, strings.ToUpper(name[:8])} {
				r.try(t.Context(), method, "own", path, "{}")
				r.try(t.Context(), method, name[:20], path, "{}")
				for _, who := range []string{"t-own", "t-" + name, ""} {
					r.askWith(t, method, "/clusters/own"+path, who, http.Header{"User-Agent": {name}, "Accept": {"application/" + name}, "Content-Type": {name}, "Impersonate-User": {name}})
				}
			}
		}
		return strings.Count(r.ask(t, http.MethodGet, "/metrics", "t-root").body, "\n")
	}
	// The server itself begins a series now and then, of a histogram with a dozen lines. One for each name would be
	// hundreds.
	first := hostile(1)
	if again := hostile(2); again > first+100 {
		t.Errorf("the same requests with other names: %d lines of metrics, and %d before", again, first)
	}

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
