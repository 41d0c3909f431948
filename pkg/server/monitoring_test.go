package server

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/regent-project/regent/pkg/server/fairness"
	"github.com/regent-project/regent/test/built"
)

// targetLabels are the labels that Prometheus adds, or the scrape configuration: deploy/prometheus/prometheus.yaml.
var targetLabels = []string{"job", "instance", "installation", "shard"}

// seldom are metrics whose first series needs more than this test has, such as several members of etcd or a file of
// configuration, with their labels. Those of Regent must be in the code with these labels.
var seldom = map[string][]string{
	"regent_etcd_member_serves":        {"endpoint"},
	"regent_issuer_key_fetches_total":  {"issuer", "result"},
	"regent_encryption_config_refused": nil,
	"apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds": {"status", "apiserver_id_hash"},
	"apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds":  {"status", "apiserver_id_hash"},
	"apiserver_authorization_webhook_evaluations_total":                                  {"name", "result"},
}

// A metric that is renamed, or loses a label, breaks the rules and the dashboards here and not at night.
func TestRulesAndDashboardsUseMetricsThatExist(t *testing.T) {
	series, text := readSeries(t)
	literals, compared := literals(t), 0
	var texts []string
	for _, rule := range regexp.MustCompile(`(?m)^  - (?:record|alert): (\S+)\n    expr: (?:>-\n((?:      .*\n)+)|(.*)$)`).FindAllStringSubmatch(content(t, "../../deploy/prometheus/rules.yaml"), -1) {
		texts = append(texts, rule[2]+rule[3])
		if strings.Contains(rule[1], ":") {
			series[rule[1]] = []string{"*"}
		}
	}
	if total := strings.Count(content(t, "../../deploy/prometheus/rules.yaml"), "    expr:"); total != len(texts) || total < 30 {
		t.Fatalf("found %d of %d rules", len(texts), total)
	}
	dashboards, err := filepath.Glob("../../deploy/grafana/*.json")
	if err != nil || len(dashboards) < 2 {
		t.Fatalf("dashboards %q, %v", dashboards, err)
	}
	for _, file := range dashboards {
		texts = append(texts, queries(t, file)...)
	}
	for n, e := range selectors(t, texts) {
		if e.Error != "" {
			t.Errorf("%s: %s", texts[n], e.Error)
		}
		for _, s := range e.Selects {
			labels, ok := series[s.Metric]
			if !ok {
				t.Errorf("there is no metric %q: %s", s.Metric, texts[n])
			}
			for label, values := range s.Values {
				for _, value := range values {
					if compared++; strings.HasPrefix(s.Metric, "regent_") && !slices.Contains(targetLabels, label) &&
						!strings.Contains(text, label+`="`+value+`"`) && !literals[value] {
						t.Errorf("metric %q never has %s=%q: %s", s.Metric, label, value, texts[n])
					}
				}
			}
			for _, label := range s.Labels {
				if !slices.Contains(labels, label) && !slices.Contains(labels, "*") && !slices.Contains(targetLabels, label) {
					t.Errorf("metric %q has no label %q: %s", s.Metric, label, texts[n])
				}
			}
		}
		for _, group := range e.Groups {
			if !slices.Contains(targetLabels, group) && !slices.ContainsFunc(e.Selects, func(s selection) bool {
				return slices.Contains(series[s.Metric], group) || slices.Contains(series[s.Metric], "*")
			}) {
				t.Errorf("no metric has the label %q: %s", group, texts[n])
			}
		}
	}
	if compared < 100 {
		t.Errorf("only %d values of labels are compared: is bin/selectors an old one? make bin/selectors", compared)
	}
}

// literals returns the texts in the product's code. A value of a label that this test does not see, such as the cause
// of a fault, is one.
func literals(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, found := range regexp.MustCompile(`"([^"\\\n]+)"`).FindAllStringSubmatch(content(t, path), -1) {
			out[found[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// readSeries returns the series' names that a replica of an installation and a front show, with their labels, and all
// that they show.
func readSeries(t *testing.T) (series map[string][]string, text string) {
	i := install(t, "eu1")
	front := i.open("front")
	front.ask(front.admin, "/clusters/root/api/v1/namespaces")
	series = map[string][]string{"up": nil}
	sample := regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? `)
	label := regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="(?:[^"\\]|\\.)*"`)
	fairness.New(1, 1) // the replicas of this test have no limits
	i.shards["root"].at.get(t, "/readyz")
	_, text = front.ask(front.admin, "/metrics")
	for _, path := range []string{"/metrics", "/metrics/slis"} {
		raw, err := i.shards["root"].at.admin(t).Get().AbsPath(path).DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		text += string(raw)
	}
	for _, found := range sample.FindAllStringSubmatch(text, -1) {
		labels := series[found[1]]
		for _, l := range label.FindAllStringSubmatch(found[2], -1) {
			if !slices.Contains(labels, l[1]) {
				labels = append(labels, l[1])
			}
		}
		series[found[1]] = labels
	}
	code := allCode(t)
	for name, labels := range seldom {
		if _, there := series[name]; there {
			continue
		}
		series[name] = labels
		if !strings.HasPrefix(name, "regent_") {
			continue
		}
		_, after, found := strings.Cut(code, `"`+name+`"`)
		for _, l := range labels {
			if end := strings.Index(after, "[]string{"); !found || end < 0 || !strings.Contains(after[end:end+80], `"`+l+`"`) {
				t.Errorf("%s with the label %s is not in the code", name, l)
			}
		}
		if !found {
			t.Errorf("%s is not in the code", name)
		}
	}
	return series, text
}

// allCode is the code of the seldom metrics.
func allCode(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, pattern := range []string{"storage/metrics.go", "authentication/metrics.go", "encryption/metrics.go"} {
		all.WriteString(content(t, pattern))
	}
	return all.String()
}

// queries returns the expressions of a dashboard.
func queries(t *testing.T, file string) (texts []string) {
	t.Helper()
	var dashboard struct {
		Panels     []struct{ Targets []struct{ Expr string } }
		Templating struct {
			List []struct{ Type, Query string }
		}
	}
	if err := yaml.Unmarshal([]byte(content(t, file)), &dashboard); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			texts = append(texts, strings.NewReplacer("$__rate_interval", "5m", "$installation", "x", "$shard", "y").Replace(target.Expr))
		}
	}
	for _, variable := range dashboard.Templating.List {
		if of, ok := strings.CutPrefix(variable.Query, "label_values("); ok {
			texts = append(texts, strings.ReplaceAll(of[:strings.LastIndex(of, ",")], "$installation", "x"))
		}
	}
	if len(texts) < 10 {
		t.Errorf("%s has only %d expressions", file, len(texts))
	}
	return texts
}

type selection struct {
	Metric string
	Labels []string
	Values map[string][]string
}

type expression struct {
	Error   string
	Selects []selection
	Groups  []string
}

// selectors asks Prometheus' parser: test/tools/promtool/selectors.
func selectors(t *testing.T, texts []string) (out []expression) {
	t.Helper()
	binary, err := built.Program("selectors")
	if err != nil {
		t.Fatal(err)
	}
	in, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), binary)
	command.Stdin = bytes.NewReader(in)
	said, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(said, &out); err != nil || len(out) != len(texts) {
		t.Fatalf("%d answers for %d expressions, %v", len(out), len(texts), err)
	}
	return out
}

func content(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
