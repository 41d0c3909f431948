package conformance

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEachDifferenceIsTold(t *testing.T) {
	expected := []expectation{
		{"CustomResource a", passes, ""},
		{"CustomResource b", fails, "no pods"},
	}
	for name, c := range map[string]struct {
		results []result
		want    string // the beginning of each difference
	}{
		"as expected":                        {[]result{{"CustomResource a", passes, "", 0}, {"CustomResource b", fails, "there are no pods here", 0}}, ""},
		"others do not count":                {[]result{{"CustomResource a", passes, "", 0}, {"CustomResource b", fails, "no pods", 0}, {"Pods run", fails, "", 0}}, ""},
		"what should pass fails":             {[]result{{"CustomResource a", fails, "oh", 0}, {"CustomResource b", fails, "no pods", 0}}, "should pass, and fails: CustomResource a: oh"},
		"what should fail passes":            {[]result{{"CustomResource a", passes, "", 0}, {"CustomResource b", passes, "", 0}}, "should fail, and passes"},
		"it fails for another reason":        {[]result{{"CustomResource a", passes, "", 0}, {"CustomResource b", fails, "no server", 0}}, "fails for another reason"},
		"one skips itself":                   {[]result{{"CustomResource a", "", "not here", 0}, {"CustomResource b", fails, "no pods", 0}}, "did not run, and should: CustomResource a: not here"},
		"one is gone":                        {[]result{{"CustomResource b", fails, "no pods", 0}}, "Kubernetes has no such spec"},
		"one is new":                         {[]result{{"CustomResource a", passes, "", 0}, {"CustomResource b", fails, "no pods", 0}, {"CustomResource c", "", "", 0}}, "is not on the page: CustomResource c"},
		"one of other resources is about us": {[]result{{"CustomResource a", passes, "", 0}, {"CustomResource b", fails, "no pods", 0}, {"Quota of a custom resource", "", "", 0}}, "is not on the page: Quota"},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(compare(expected, c.results), "\n")
			if (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) || strings.Contains(got, "\n") {
				t.Errorf("got %q, want one that begins with %q", got, c.want)
			}
		})
	}
}

func TestThePageIsReadAsItLooks(t *testing.T) {
	const rows = "### Kind [x]\n\n| spec | result | why |\n|---|---|---|\n| works | passes | |\n| flies | fails | no wings: `wings 404` are missing |\n\n| a | b | c |\n"
	got, err := readPage(rows)
	want := []expectation{{"Kind [x] works", passes, ""}, {"Kind [x] flies", fails, "wings 404"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(expectation{})); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	for _, bad := range []string{"| flies | fails | why not |", "| works | passes | |\n| works | passes | |"} {
		if _, err := readPage("### Kind\n" + bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
