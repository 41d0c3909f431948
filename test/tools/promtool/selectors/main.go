// Command selectors reads PromQL expressions as a JSON list from standard input, and tells as JSON what each one
// selects, or why it is none.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// expression is the answer for one expression.
type expression struct {
	Error string `json:"error,omitempty"`
	// Selects are the metrics, each with the labels by which series are chosen.
	Selects []selection `json:"selects,omitempty"`
	// Groups are the labels of aggregations and matchings.
	Groups []string `json:"groups,omitempty"`
}

type selection struct {
	Metric string   `json:"metric"`
	Labels []string `json:"labels,omitempty"`
	// Values are the values that the labels are compared with, by label. Those of a regular expression are its
	// alternatives, if these are plain.
	Values map[string][]string `json:"values,omitempty"`
}

// valuesOf returns what a matcher compares with.
func valuesOf(m *labels.Matcher) (values []string) {
	if m.Type == labels.MatchEqual || m.Type == labels.MatchNotEqual {
		return []string{m.Value}
	}
	for _, value := range strings.Split(m.Value, "|") {
		if value == regexp.QuoteMeta(value) {
			values = append(values, value)
		}
	}
	return values
}

func main() {
	var texts []string
	if err := json.NewDecoder(os.Stdin).Decode(&texts); err != nil {
		fmt.Fprintln(os.Stderr, "no JSON list of expressions:", err)
		os.Exit(1)
	}
	out := make([]expression, len(texts))
	for i, text := range texts {
		out[i] = read(text)
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(text string) (e expression) {
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		return expression{Error: err.Error()}
	}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			s := selection{Metric: n.Name, Values: map[string][]string{}}
			for _, m := range n.LabelMatchers {
				if m.Name != labels.MetricName {
					s.Labels = append(s.Labels, m.Name)
					s.Values[m.Name] = append(s.Values[m.Name], valuesOf(m)...)
				}
			}
			e.Selects = append(e.Selects, s)
		case *parser.AggregateExpr:
			e.Groups = append(e.Groups, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				e.Groups = append(e.Groups, n.VectorMatching.MatchingLabels...)
			}
		}
		return nil
	})
	return e
}
