package conformance

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

var (
	regent  = flag.String("regent", filepath.Join("..", "..", "..", "bin", "regent"), "the server that is tested")
	kubectl = flag.String("kubectl", filepath.Join("..", "..", "..", "bin", "kubectl"), "the kubectl that specs call")
	logs    = flag.String("logs", filepath.Join("..", "..", "..", "bin", "conformance"), "directory for the output of the specs and of the server")
	page    = flag.String("page", filepath.Join("..", "..", "..", "docs", "CONFORMANCE.md"), "what is expected")
	only    = flag.String("only", "", "regular expression of the titles of the specs to run; empty: all of the page")
)

func TestKubernetesSpecsDoWhatThePageSays(t *testing.T) {
	content, err := os.ReadFile(*page)
	if err != nil {
		t.Fatal(err)
	}
	expected, err := readPage(string(content))
	if err != nil {
		t.Fatalf("%s: %v", *page, err)
	}
	wanted, err := regexp.Compile(*only)
	if err != nil {
		t.Fatalf("-only: %v", err)
	}
	chosen := slices.DeleteFunc(slices.Clone(expected), func(e expectation) bool { return !wanted.MatchString(e.title) })
	if len(chosen) == 0 {
		t.Fatalf("%s has no spec that matches %q", *page, *only)
	}
	if err := os.MkdirAll(*logs, 0o755); err != nil {
		t.Fatal(err)
	}
	// kubectl keeps what it has discovered for hours, and explains nothing by a short name that is newer. So it may
	// keep nothing.
	t.Setenv("KUBECACHEDIR", filepath.Join(os.DevNull, "none"))
	url, kubeconfig := createWorkspace(t, startShard(t, *logs), "conformance")
	all := runSpecs(t, url, kubeconfig, titles(chosen))
	if *only != "" {
		all = slices.DeleteFunc(all, func(r result) bool { return !wanted.MatchString(r.title) })
	}
	count := map[outcome]int{}
	for _, r := range all {
		if r.outcome != "" {
			count[r.outcome]++
			t.Logf("%s %5.1f s  %s", r.outcome, r.took.Seconds(), r.title)
		}
	}
	t.Logf("%d specs pass, %d fail; their output is in %s", count[passes], count[fails], *logs)
	for _, d := range compare(chosen, all) {
		t.Error(d)
	}
}

func titles(of []expectation) (all []string) {
	for _, e := range of {
		all = append(all, e.title)
	}
	return all
}
