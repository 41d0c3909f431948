package custom

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// BenchmarkWholeDocument makes and sends the OpenAPI v2 document of a cluster with so many definitions of 16 KiB.
func BenchmarkWholeDocument(b *testing.B) {
	for _, n := range []int{20, 200} {
		b.Run(fmt.Sprint(n, " definitions"), func(b *testing.B) {
			var contents Contents
			var definitions []*Definition
			size := 0
			for i := range n {
				var properties strings.Builder
				for p := range 100 {
					fmt.Fprintf(&properties, `, "field%d": {"type": "object", "description": %q, "properties": {"a": {"type": "string"}}}`, p, strings.Repeat("x", 80))
				}
				d := widgets(properties.String())
				d.Spec.Group = fmt.Sprintf("group%d.example.com", i)
				content, err := contents.Of(&d.Spec, &d.Status.AcceptedNames)
				if err != nil {
					b.Fatal(err)
				}
				definitions = append(definitions, &Definition{Content: content})
				size += content.size
			}
			var last *documentCache
			sent := 0
			for b.Loop() {
				answer := httptest.NewRecorder()
				last = newDocumentCache()
				o := newWhole(last)
				o.builtIn.Store(emptyDocument())
				req := httptest.NewRequest(http.MethodGet, "/openapi/v2", nil)
				if ok, err := o.serve(answer, req, definitions, http.NotFoundHandler()); !ok || err != nil {
					b.Fatal(ok, err)
				}
				sent = answer.Body.Len()
			}
			b.ReportMetric(float64(last.recent.bytes)/float64(size), "kept-bytes/byte")
			b.ReportMetric(float64(sent)/float64(size), "sent-bytes/byte")
			b.ReportMetric(float64(size)/float64(n), "bytes/definition")
		})
	}
}
