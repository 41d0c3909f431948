package clusters

import (
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
)

func TestANameIsOneSegmentForEverybody(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "system:node": true, "a b": true, "ä": true, "a:b.c-d_e": true, "..a": true, "%": false,
		"": false, ".": false, "..": false, "a/b": false, "../../watch/namespaces/default/configmaps": false, "a%2fb": false,
		"a\x01b": false, "a\nb": false, "a\x7f": false, "a\u0085b": false, "a\x00": false, "a\xff": false,
	} {
		if got := IsObjectName(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}

func FuzzAClusterIsNamedAsUpstreamHasIt(f *testing.F) {
	for _, name := range []string{
		"", "a", "ab", "root", "a-b", "-a", "a-", "a--b", "A1", "a.b", "a_b", "1a", "root:org", "system:", "system:admin", "system:a:b", "system:-", "system",
		"*", "ä1", "ab\n", "a\x00b", strings.Repeat("a", 63), strings.Repeat("a", 64), "system:" + strings.Repeat("a", 64),
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name := logicalcluster.Name(text)
		if got, want := IsValidName(name), name.IsValid() && name.Path().IsValid(); got != want {
			t.Errorf("%q: %v, upstream: %v", text, got, want)
		}
	})
}
