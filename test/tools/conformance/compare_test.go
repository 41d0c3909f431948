package conformance

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// outcome is how a spec ended. The zero value is of those that did not run, or that skipped themselves.
type outcome string

const (
	passes outcome = "passes"
	fails  outcome = "fails"
)

// result is what a spec of Kubernetes did.
type result struct {
	title   string
	outcome outcome
	said    string // why it failed, or skipped itself
	took    time.Duration
}

// concerns matches the titles of specs that the page has to have: those that are about custom resources.
var concerns = regexp.MustCompile(`^(CustomResource|CRDValidation|AggregatedDiscovery|FieldValidation|ServerSideApply|OpenAPIV3|Discovery|Kubectl client Kubectl validation)|custom resource|CRD`)

// compare tells where the results differ from what is expected.
func compare(expected []expectation, results []result) (differences []string) {
	differ := func(format string, args ...any) { differences = append(differences, fmt.Sprintf(format, args...)) }
	of := map[string]result{}
	for _, r := range results {
		of[r.title] = r
	}
	listed := map[string]bool{}
	for _, e := range expected {
		listed[e.title] = true
		switch r, ok := of[e.title]; {
		case !ok:
			differ("Kubernetes has no such spec: take it out of the page: %s", e.title)
		case r.outcome == "":
			differ("did not run, and should: %s: %s", e.title, r.said)
		case e.outcome == passes && r.outcome == fails:
			differ("should pass, and fails: %s: %s", e.title, r.said)
		case e.outcome == fails && r.outcome == passes:
			differ("should fail, and passes: say so on the page: %s", e.title)
		case e.outcome == fails && !strings.Contains(r.said, e.says):
			differ("fails for another reason than %q: %s: %s", e.says, e.title, r.said)
		}
	}
	for _, r := range results {
		if concerns.MatchString(r.title) && !listed[r.title] {
			differ("is not on the page: %s: %s %s", r.title, r.outcome, r.said)
		}
	}
	return differences
}
