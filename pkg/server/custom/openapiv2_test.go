package custom

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/kcp-dev/logicalcluster/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/regent-project/regent/pkg/clusters"
)

// wholeOf returns the OpenAPI v2 document of a cluster, and its ETag.
func (w *world) wholeOf(t *testing.T, cluster string) (doc spec.Swagger, etag string) {
	t.Helper()
	header := w.ask(t, cluster+"/openapi/v2", "application/json", &doc)
	return doc, header.Get("ETag")
}

func TestOneDocumentHasAllSchemasOfACluster(t *testing.T) {
	w := newWorld(t)
	d := widgets(`, "size": {"type": "integer", "default": 3}`)
	d.Spec.Versions = append(d.Spec.Versions, d.Spec.Versions[0], d.Spec.Versions[0])
	d.Spec.Versions[1].Name, d.Spec.Versions[1].Storage = "v2", false
	d.Spec.Versions[2].Name, d.Spec.Versions[2].Storage, d.Spec.Versions[2].Served = "v3", false, false
	w.define(t, "aa", d)
	w.define(t, "bb", d)
	w.define(t, "cc", widgets(""))

	doc, etag := w.wholeOf(t, "aa")
	for _, name := range []string{"in.built.v1.Thing", "com.example.v1.Widget", "com.example.v1.WidgetList", "com.example.v2.Widget", "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"} {
		if _, ok := doc.Definitions[name]; !ok {
			t.Errorf("the document lacks %s", name)
		}
	}
	if _, ok := doc.Definitions["com.example.v3.Widget"]; ok {
		t.Error("a version that is not served has a schema")
	}
	kind := doc.Definitions["com.example.v1.Widget"]
	if _, ok := kind.Properties["spec"].Properties["size"]; !ok {
		t.Errorf("the schema of a Widget is %+v", kind)
	}
	if _, ok := kind.Extensions["x-kubernetes-selectable-fields"]; !ok {
		t.Errorf("it does not say which fields can be selected by: %v", kind.Extensions)
	}
	for _, path := range []string{"/apis/built.in/v1/", "/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"} {
		if _, ok := doc.Paths.Paths[path]; !ok {
			t.Errorf("the document lacks %s", path)
		}
	}
	if _, same := w.wholeOf(t, "bb"); same != etag || etag == "" {
		t.Errorf("clusters that define the same have %s and %s", etag, same)
	}
	if other, differs := w.wholeOf(t, "cc"); differs == etag || other.Definitions["com.example.v1.Widget"].Properties["spec"].Properties["size"].Type != nil {
		t.Error("a cluster shows what another one defines")
	}
	if none, _ := w.wholeOf(t, "dd"); len(none.Definitions) != 1 {
		t.Errorf("a cluster that defines nothing has %d schemas", len(none.Definitions))
	}

	w.define(t, "aa", widgets(""))
	if after, _ := w.wholeOf(t, "aa"); after.Definitions["com.example.v2.Widget"].Type != nil {
		t.Error("what is not defined any more is still there")
	}
}

func TestTheWholeDocumentIsSentAsItIsAskedFor(t *testing.T) {
	w := newWorld(t)
	w.define(t, "aa", widgets(""))
	_, etag := w.wholeOf(t, "aa")
	send := func(header, value string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/clusters/aa/openapi/v2", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(header, value)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	if resp := send("If-None-Match", etag); resp.StatusCode != http.StatusNotModified {
		t.Errorf("who has it gets it again: %s", resp.Status)
	}
	if resp := send("Accept", "text/html"); resp.StatusCode != http.StatusNotAcceptable {
		t.Errorf("there is a form that nobody has: %s", resp.Status)
	}
	plain := send("Accept-Encoding", "identity")
	if text, err := io.ReadAll(plain.Body); err != nil || plain.Header.Get("Content-Encoding") != "" || !json.Valid(text) {
		t.Errorf("who does not decompress gets %v %v: %.80q", plain.Header, err, text)
	}
	if resp := send("Accept-Encoding", "gzip"); resp.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("who decompresses gets %v", resp.Header)
	}
	resp := send("Accept", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(resp.Header.Get("Content-Type"), "protobuf") || !bytes.Contains(body, []byte("com.example.v1.Widget")) || body[0] == '{' {
		t.Errorf("%s, %v, want protobuf: %v: %.80q", resp.Status, resp.Header, err, body)
	}
}

// The largest are left out, one by one, and a warning names them.
func TestTooMuchForOneDocumentLeavesOutTheLargest(t *testing.T) {
	w := newWorld(t)
	w.define(t, "aa", widgets(""))
	for _, c := range []struct {
		plural string
		size   int
	}{{"larges", maxInWhole / 2}, {"larger", maxInWhole * 2 / 3}, {"largest", maxInWhole}} {
		large := widgets(fmt.Sprintf(`, "text": {"type": "string", "description": %q}`, strings.Repeat("x", c.size)))
		large.Name, large.Spec.Names.Plural, large.Spec.Names.Kind, large.Spec.Names.ListKind = c.plural+".example.com", c.plural, "L"+c.plural, "L"+c.plural+"List"
		large.Spec.Names.Singular, large.Spec.Names.ShortNames = "", nil
		large.Status.AcceptedNames = large.Spec.Names
		w.define(t, "aa", large)
	}
	var doc spec.Swagger
	header := w.ask(t, "aa/openapi/v2", "application/json", &doc)
	for name, want := range map[string]bool{"com.example.v1.Widget": true, "com.example.v1.Llarges": true, "com.example.v1.Llarger": false, "com.example.v1.Llargest": false, "in.built.v1.Thing": true} {
		if _, got := doc.Definitions[name]; got != want {
			t.Errorf("it has %s: %t, want %t", name, got, want)
		}
	}
	if got := header.Get("Warning"); !strings.Contains(got, "leaves out 2 custom resources") || !strings.Contains(got, "larger.example.com, largest.example.com") {
		t.Errorf("the warning is %q", got)
	}
}

// A few clusters with very much, or one that asks again and again, hold up those like them only.
func TestDocumentsOfOneClusterDoNotHoldUpThoseOfOthers(t *testing.T) {
	synctest.Test(t, documentsTakeTurns)
}

func documentsTakeTurns(t *testing.T) {
	o := newWhole(newDocumentCache())
	in := func(cluster logicalcluster.Name) context.Context { return clusters.With(t.Context(), cluster) }
	turn := func(cluster logicalcluster.Name, size int) func() {
		made, err := o.turn(in(cluster), size)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	large := turn("aa", maxInWhole)
	turn("bb", smallInWhole)()
	var order []string
	var all sync.WaitGroup
	next := make(chan func())
	for _, cluster := range []logicalcluster.Name{"cc", "cc", "cc", "dd"} {
		all.Go(func() {
			made := turn(cluster, maxInWhole)
			next <- func() { order = append(order, cluster.String()); made() }
		})
	}
	synctest.Wait() // all wait
	large()
	for range 4 {
		synctest.Wait()
		(<-next)()
	}
	all.Wait()
	if last := slices.Index(order, "dd"); last > 1 {
		t.Errorf("dd came after %d of cc: %v", last, order)
	}
	if len(o.clusters.at) != 0 || len(o.large)+len(o.small) != 0 {
		t.Errorf("what is left: %v", o.clusters.at)
	}
}

func TestWhoGoesAwayDoesNotWaitForTheDocumentsOfOthers(t *testing.T) {
	o := newWhole(newDocumentCache())
	o.small <- struct{}{} // somebody makes one, and is not done
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	content, err := (&Contents{}).Of(&widgets("").Spec, &widgets("").Spec.Names)
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/openapi/v2", nil)
	if _, err := o.serve(httptest.NewRecorder(), req, []*Definition{{Content: content}}, http.NotFoundHandler()); !apierrors.IsTimeout(err) {
		t.Errorf("the answer is %v", err)
	}
}
