package main

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// metric is a metric as it is declared.
type metric struct {
	name, kind, help string
	labels           []string
	declared         string // the package
}

// ofFronts are the packages whose metrics fronts have. Those of the first are not of replicas.
var ofFronts = []string{"pkg/server/front", "pkg/server/connections"}

const metricsIntro = `# Metrics

What Regent itself counts. What to look at, and what to do about it, is in [OPERATIONS.md](../OPERATIONS.md#metrics).

All of upstream's metrics are on the same page, under their usual names: ` + "`apiserver_*`, `authentication_*`, `authorization_*`, `etcd_*`, `grpc_client_*`, " +
	"`rest_client_*`, `workqueue_*`, `go_*`, `process_*`" + ` and a few more, as far as a process uses what they count.

A program that imports ` + "`pkg/election`, `pkg/election/detect` or `pkg/election/control/supervisor`" + ` has the metrics of that package, too,
once it has registered them: ` + "`metrics.Register` of `pkg/election/metrics`" + `.
`

func metricsPage(code *source, _ string) (string, error) {
	var replicas, fronts []metric
	for _, p := range code.packages {
		found, err := p.metrics()
		if err != nil {
			return "", err
		}
		if slices.Contains(ofFronts, p.path) {
			fronts = append(fronts, found...)
		}
		if p.path != ofFronts[0] {
			replicas = append(replicas, found...)
		}
	}
	if len(replicas) < 30 || len(fronts) < 5 {
		return "", fmt.Errorf("only %d metrics of replicas and %d of fronts were found", len(replicas), len(fronts))
	}
	return generated + metricsIntro + "\n## Replicas\n" + table(replicas) + "\n## Fronts\n" + table(fronts), nil
}

func table(of []metric) string {
	slices.SortFunc(of, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	var out strings.Builder
	out.WriteString("\n| metric | type | labels | help | declared in |\n|---|---|---|---|---|\n")
	for _, m := range of {
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s | `%s` |\n", m.name, m.kind, labels(m.labels), cell(m.help), m.declared)
	}
	return out.String()
}

func labels(names []string) string {
	if len(names) == 0 {
		return "-"
	}
	return "`" + strings.Join(names, "`, `") + "`"
}

// metrics returns the metrics that a package declares.
func (p *goPackage) metrics() (out []metric, err error) {
	kinds := p.computed()
	add := func(m metric, name, help, labels ast.Expr) {
		var faults [3]error
		m.name, faults[0] = p.text(name)
		m.help, faults[1] = p.text(help)
		m.labels, faults[2] = p.texts(labels)
		for _, fault := range faults {
			if fault != nil {
				err = fault
			}
		}
		out = append(out, m)
	}
	p.each(func(n ast.Node) {
		switch n := n.(type) {
		case *ast.CallExpr:
			if kind, labels := seriesOf(n); kind != "" {
				add(metric{kind: kind, declared: p.path}, n.Args[0], n.Args[1], labels)
			} else if opts, kind := options(n); opts != nil {
				var labels ast.Expr
				if len(n.Args) > 1 {
					labels = n.Args[1]
				}
				add(metric{kind: kind, declared: p.path}, field(opts, "Name"), field(opts, "Help"), labels)
			}
		case *ast.ValueSpec:
			for i, value := range n.Values {
				if call, ok := value.(*ast.CallExpr); ok && selected(call.Fun, "metrics") == "NewDesc" {
					add(metric{kind: kinds[n.Names[i].Name], declared: p.path}, call.Args[0], call.Args[1], call.Args[2])
				}
			}
		}
	})
	return out, err
}

// seriesOf returns the type of the metric that a call of pkg/election/internal/series makes, and a literal of its
// labels. The type of another call is empty.
func seriesOf(call *ast.CallExpr) (kind string, labels ast.Expr) {
	name := selected(call.Fun, "series")
	at, ok := map[string]int{"NewGauge": 2, "NewCounter": 2, "NewHistogram": 3, "NewGaugeView": 3}[name]
	if !ok || len(call.Args) < at {
		return "", nil
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(name, "New"), "View")), &ast.CompositeLit{Elts: call.Args[at:]}
}

// options returns the options and the type of the metric that a call makes, or nil.
func options(call *ast.CallExpr) (opts *ast.CompositeLit, kind string) {
	name := strings.TrimSuffix(strings.TrimPrefix(selected(call.Fun, "metrics"), "New"), "Vec")
	if !slices.Contains([]string{"Counter", "Gauge", "Histogram", "TimingHistogram", "Summary"}, name) || len(call.Args) == 0 {
		return nil, ""
	}
	if pointer, ok := call.Args[0].(*ast.UnaryExpr); ok {
		opts, _ = pointer.X.(*ast.CompositeLit)
	}
	return opts, strings.ToLower(name)
}

// computed returns the types of metrics that are computed when somebody asks, by the variables that describe them.
func (p *goPackage) computed() map[string]string {
	out := map[string]string{}
	p.each(func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok || selected(call.Fun, "metrics") != "NewLazyConstMetric" {
			return
		}
		if of, ok := call.Args[0].(*ast.Ident); ok {
			out[of.Name] = strings.ToLower(strings.TrimSuffix(selected(call.Args[1], "metrics"), "Value"))
		}
	})
	return out
}

// texts returns the values of a literal of constant strings. Nil: none.
func (p *goPackage) texts(e ast.Expr) (out []string, err error) {
	literal, ok := e.(*ast.CompositeLit)
	if !ok {
		return nil, nil
	}
	for _, element := range literal.Elts {
		text, err := p.text(element)
		if err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, nil
}
