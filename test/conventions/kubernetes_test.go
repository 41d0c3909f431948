package conventions

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Kubernetes itself is not compiled with the patches here: make long-kcm does that. What this test can tell is what
// TestKcpAdoptsThePackagesInAHundredLines can.
func TestKubernetesAdoptsThePackagesInFewLines(t *testing.T) {
	for name, want := range map[string]struct {
		most     int
		packages []string
	}{
		"kube-controller-manager": {150, []string{"election", "fence", "join", "leader"}},
		"kube-apiserver":          {10, []string{"etcdfence"}},
	} {
		p, fault := readPatch(string(readFile(t, "../../examples/kube-controller-manager/"+name+".patch")))
		if fault != "" {
			t.Errorf("%s.patch: %s", name, fault)
		}
		var added []string
		for file, lines := range p.added {
			t.Logf("%s: %d lines added, %d deleted", file, len(lines), p.deleted[file])
			added = append(added, lines...)
		}
		if len(added) == 0 || len(added) > want.most {
			t.Errorf("%s.patch adds %d lines, want 1 to %d", name, len(added), want.most)
		}
		source, packages := strings.Join(added, "\n"), map[string]*exported{}
		for _, found := range regexp.MustCompile(`"`+regexp.QuoteMeta(module)+`(pkg/[\w/]+)"`).FindAllStringSubmatch(source, -1) {
			packages[filepath.Base(found[1])] = exportedBy(t, filepath.Join("../..", found[1]))
		}
		for _, p := range want.packages {
			if packages[p] == nil {
				t.Errorf("%s.patch does not import %s: what this test looks for is not there", name, p)
			}
		}
		for _, fault := range misused(packages, source) {
			t.Errorf("%s.patch uses %s", name, fault)
		}
	}
}
