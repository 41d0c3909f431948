package clusters

import "testing"

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
