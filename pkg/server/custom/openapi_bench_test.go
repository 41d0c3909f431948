package custom

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// BenchmarkSchemasOfAGroup makes the OpenAPI v3 document of a group with so many kinds of 2.5 KiB. What each kind costs
// must not grow with their number.
func BenchmarkSchemasOfAGroup(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint(n, " kinds"), func(b *testing.B) {
			definitions := kinds(b, n)
			for b.Loop() {
				answer := httptest.NewRecorder()
				req := httptest.NewRequest(http.MethodGet, "/openapi/v3/apis/example.com/v1", nil)
				req.Header.Set("Accept", "application/com.github.proto-openapi.spec.v3.v1.0+protobuf")
				if ok, err := newDocuments().schemas(answer, req, definitions, schema.GroupVersion{Group: "example.com", Version: "v1"}); !ok || err != nil || answer.Code != http.StatusOK {
					b.Fatal(ok, err, answer.Code)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "µs/kind")
		})
	}
}

// kinds returns definitions of so many kinds of one group.
func kinds(t testing.TB, n int) (definitions []*Definition) {
	t.Helper()
	var contents Contents
	for i := range n {
		var properties strings.Builder
		for p := range 12 {
			fmt.Fprintf(&properties, `, "field%d": {"type": "string", "description": "Field %d says what the %dth thing of %d is about, in a sentence."}`, p, p, p, i)
		}
		d := widgets(properties.String())
		d.Spec.Names.Plural, d.Spec.Names.Kind = fmt.Sprintf("things%05d", i), fmt.Sprintf("Thing%05d", i)
		d.Spec.Names.ListKind = d.Spec.Names.Kind + "List"
		d.Status.AcceptedNames = d.Spec.Names
		content, err := contents.Of(&d.Spec, &d.Status.AcceptedNames)
		if err != nil {
			t.Fatal(err)
		}
		definitions = append(definitions, &Definition{Content: content})
	}
	return definitions
}
