package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

const alertsIntro = `# Alerts

For operators who are called: what each alert of ` + "`deploy/prometheus/rules.yaml`" + ` means, and what to do. [OPERATIONS.md](../OPERATIONS.md#alerts)
says how to scrape, and what the severities are. Words in italics are labels of the alert.
`

// alertingRule is one of a file of Prometheus' rules.
type alertingRule struct {
	Alert, For          string
	Labels, Annotations map[string]string
}

// alertsPage has a section for each alert, from its annotations.
func alertsPage(_ *source, root string) (string, error) {
	content, err := os.ReadFile(filepath.Join(root, "deploy", "prometheus", "rules.yaml"))
	if err != nil {
		return "", err
	}
	var file struct {
		Groups []struct{ Rules []alertingRule }
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		return "", fmt.Errorf("deploy/prometheus/rules.yaml: %w", err)
	}
	var page strings.Builder
	page.WriteString(strings.Replace(generated, "the code", "deploy/prometheus/rules.yaml", 1) + alertsIntro)
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			if rule.Alert == "" {
				continue
			}
			if err := rule.write(&page); err != nil {
				return "", err
			}
		}
	}
	return page.String(), nil
}

// write writes the section of an alert. It has no meaning beside its description where that says all.
func (r *alertingRule) write(page *strings.Builder) error {
	severity := r.Labels["severity"]
	if r.For != "" {
		severity += ", after " + r.For
	}
	meaning := strings.TrimSpace(r.Annotations["description"] + " " + r.Annotations["meaning"])
	fmt.Fprintf(page, "\n### %s\n\n*%s*\n\n", r.Alert, severity)
	for _, part := range []struct{ name, text string }{
		{"Meaning", meaning}, {"Impact", r.Annotations["impact"]}, {"Diagnosis", r.Annotations["diagnosis"]}, {"Mitigation", r.Annotations["mitigation"]},
	} {
		if part.text == "" {
			return fmt.Errorf("alert %s of deploy/prometheus/rules.yaml has no annotation %q: say it there", r.Alert, strings.ToLower(part.name))
		}
		fmt.Fprintf(page, "- *%s*: %s\n", part.name, link(part.text))
	}
	return nil
}

var (
	alertLabel = regexp.MustCompile(`{{ \$labels\.(\w+) }}`)
	namedPage  = regexp.MustCompile(`docs/([A-Z-]+\.md)(#[a-z-]+)?`)
)

// link makes links of the pages that an annotation names, and words of the labels.
func link(text string) string {
	return namedPage.ReplaceAllString(alertLabel.ReplaceAllString(text, "*$1*"), "[$1](../$1$2)")
}
