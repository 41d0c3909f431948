package access_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// The scripts say what Kubernetes documents in "Using RBAC Authorization", and what this server adds to it.
// testdata/semantics has them, script their language. A slow model answers them, too: so the model is right where the
// random policies are judged by it.
func TestAPolicyAllowsWhatKubernetesDocuments(t *testing.T) {
	files, err := filepath.Glob("testdata/semantics/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	total, allowed := 0, 0
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			s := parseScript(t, file)
			inInformers := cached(t, s.policy)
			all, models := alphabetOf(s), map[string]model{}
			for _, q := range s.questions {
				total++
				if q.want {
					allowed++
				}
				if got := ask(t, s.policy, q.cluster, q.attr); got != q.want {
					t.Errorf("%s:%d: %s in %q: %s is allowed: %t", file, q.line, q.text, q.cluster, q.attr.Verb, got)
				}
				if got := ask(t, inInformers, q.cluster, q.attr); got != q.want {
					t.Errorf("%s:%d: %s in %q: %s is allowed by the caches: %t", file, q.line, q.text, q.cluster, q.attr.Verb, got)
				}
				who := q.cluster + " " + strings.Fields(q.text)[0]
				if _, ok := models[who]; !ok {
					models[who] = modelOf(s.policy, q.cluster, q.attr.User, all)
				}
				if got := models[who].allows(q.attr); got != q.want {
					t.Errorf("%s:%d: %s in %q: %s is allowed by the model: %t", file, q.line, q.text, q.cluster, q.attr.Verb, got)
				}
			}
		})
	}
	if total < 200 || allowed < 70 || total-allowed < 70 {
		t.Errorf("%d cases, %d of them allowed: too few", total, allowed)
	}
}
