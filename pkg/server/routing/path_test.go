package routing

import (
	"net/url"
	"strings"
	"testing"

	"github.com/regent-project/regent/pkg/clusters"
)

// FuzzSplitPath checks that a path is taken apart in one way only: what comes out, put together again, is the URL's
// path and is taken apart the same, and no part of it means something else when it is decoded or cleaned again.
func FuzzSplitPath(f *testing.F) {
	for _, seed := range []string{
		"/clusters/root", "/clusters/root/", "/clusters/root/api/v1", "/clusters/*/api", "/clusters/root:a/api", "/clusters/system:admin/",
		"/clusters/root%3Aa/api", "/clusters/%72oot/api", "/clusters/root%2Fapi", "/clusters/root%252Fapi", "/clusters/root%5Capi",
		"/clusters/root/%2e%2e/api", "/clusters/root/./api", "/clusters/root//api", "/clusters//api", "/clusters/", "/clusters", "clusters/root",
		"/clusters/root:*/api", "/clusters/root:/api", "/clusters/:root/api", "/clusters/ROOT", "/clusters/root/a%00b", "/clusters/root/a%7fb",
		"/clusters/root/clusters/other/api", "/clusters/root/livez", "/clusters/r\u00f6\u00f6t/api", "/clusters/root/\xff",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.ParseRequestURI(raw)
		if err != nil {
			return
		}
		cluster, rest, err := splitPath(u)
		if err != nil {
			if rest != "" && cluster.String() != "" {
				t.Errorf("%q: refused, and taken apart into %q and %q", raw, cluster, rest)
			}
			return
		}
		if !strings.HasPrefix(rest, "/") || !isClean(rest) {
			t.Fatalf("%q: the rest is %q", raw, rest)
		}
		whole := prefix + cluster.String() + rest
		if whole != u.Path && whole != u.Path+"/" {
			t.Fatalf("%q: the path is %q, and its parts make %q", raw, u.Path, whole)
		}
		if name := cluster.String(); name != clusters.Wildcard.String() && (!cluster.IsValid() || strings.ContainsAny(name, "/%*. ")) {
			t.Fatalf("%q: %q names a cluster", raw, name)
		}
		again, restAgain, err := splitPath(&url.URL{Path: whole})
		if err != nil || again != cluster || restAgain != rest {
			t.Fatalf("%q: taken apart again: %q, %q, %v", raw, again, restAgain, err)
		}
	})
}
