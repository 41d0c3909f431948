// Package monitoring tests what deploy/prometheus and docs/reference/alerts.md say of each other. That each alert
// fires, `make alerts` tests (test/tools/promtool).
package monitoring

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const directory = "../../deploy/prometheus"

// rules is a file of rules.
type rules struct {
	Groups []struct {
		Rules []struct {
			Record, Alert, Expr, For string
			Labels, Annotations      map[string]string
		}
	}
}

// Whoever is called at night finds the alert's section, and nobody writes an alert that no test fires.
func TestEachAlertHasARunbookAndATest(t *testing.T) {
	page, tests := string(read(t, "../../docs/reference/alerts.md")), string(read(t, directory+"/tests.yaml"))
	var file rules
	if err := yaml.Unmarshal(read(t, directory+"/rules.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			if rule.Alert == "" {
				continue
			}
			known[rule.Alert] = true
			_, section, found := strings.Cut(page, "\n### "+rule.Alert+"\n")
			section, _, _ = strings.Cut(section, "\n#")
			for _, part := range []string{"*Meaning*", "*Impact*", "*Diagnosis*", "*Mitigation*"} {
				if !found || !strings.Contains(section, part) {
					t.Errorf("docs/reference/alerts.md does not tell the %s of %s: make generate", part, rule.Alert)
				}
			}
			if link := rule.Annotations["runbook_url"]; !strings.HasSuffix(link, "/docs/reference/alerts.md#"+strings.ToLower(rule.Alert)) {
				t.Errorf("%s links to %q", rule.Alert, link)
			}
			for _, name := range []string{"summary", "description", "impact", "diagnosis", "mitigation"} {
				if rule.Annotations[name] == "" {
					t.Errorf("%s has no %s", rule.Alert, name)
				}
			}
			if severity := rule.Labels["severity"]; severity != "critical" && severity != "warning" && severity != "info" {
				t.Errorf("%s has the severity %q", rule.Alert, severity)
			}
			if !regexp.MustCompile(`(?s)alertname: ` + rule.Alert + `\n    exp_alerts:\n    - exp_labels`).MatchString(tests) {
				t.Errorf("no test fires %s", rule.Alert)
			}
		}
	}
	if len(known) < 30 {
		t.Errorf("only %d alerts", len(known))
	}
	for _, heading := range regexp.MustCompile(`(?m)^### (Regent\w+)$`).FindAllStringSubmatch(page, -1) {
		if !known[heading[1]] {
			t.Errorf("docs/reference/alerts.md tells of %s, which is no alert: make generate", heading[1])
		}
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
