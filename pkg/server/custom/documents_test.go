package custom

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/handler3"
)

// ask makes a request that accepts a media type, decodes the answer, and returns its header.
func (w *world) ask(t *testing.T, path, accept string, into any) http.Header {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/clusters/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %v: %s", path, resp.StatusCode, err, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		t.Fatalf("%s: %v: %s", path, err, body)
	}
	return resp.Header
}

const aggregatedJSON = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

func TestAClusterDiscoversWhatItDefinesAndWhatIsBuiltIn(t *testing.T) {
	w := newWorld(t)
	d := widgets("")
	d.Spec.Versions = append(d.Spec.Versions, d.Spec.Versions[0], d.Spec.Versions[0])
	d.Spec.Versions[1].Name, d.Spec.Versions[1].Storage = "v2beta1", false
	d.Spec.Versions[2].Name, d.Spec.Versions[2].Storage, d.Spec.Versions[2].Served = "v3", false, false
	w.define(t, "aa", d)

	var groups metav1.APIGroupList
	w.ask(t, "aa/apis", "application/json", &groups)
	var all apidiscoveryv2.APIGroupDiscoveryList
	w.ask(t, "aa/apis", aggregatedJSON, &all)
	var got, gotAll []string
	for _, g := range groups.Groups {
		got = append(got, g.Name)
	}
	for _, g := range all.Items {
		gotAll = append(gotAll, g.Name)
	}
	if want := []string{"built.in", "example.com"}; !slices.Equal(got, want) || !slices.Equal(gotAll, want) {
		t.Errorf("groups %v, aggregated %v, want %v", got, gotAll, want)
	}
	versions := all.Items[1].Versions
	if len(versions) != 2 || versions[0].Version != "v1" || versions[1].Version != "v2beta1" {
		t.Errorf("versions %v, want those that are served, the preferred one first", versions)
	}
	r := versions[0].Resources[0]
	if r.Resource != "widgets" || r.Scope != apidiscoveryv2.ScopeNamespace || !slices.Equal(r.ShortNames, []string{"wd"}) || len(r.Subresources) != 1 {
		t.Errorf("the resource is %+v", r)
	}
	var group metav1.APIGroup
	w.ask(t, "aa/apis/example.com", "application/json", &group)
	if group.PreferredVersion.Version != "v1" || len(group.Versions) != 2 {
		t.Errorf("the group is %+v", group)
	}
	var list metav1.APIResourceList
	w.ask(t, "aa/apis/example.com/v2beta1", "application/json", &list)
	if len(list.APIResources) != 2 || list.APIResources[1].Name != "widgets/status" || !slices.Contains(list.APIResources[0].Verbs, "create") {
		t.Errorf("the resources are %+v", list.APIResources)
	}
	for _, elsewhere := range []string{"bb/apis/example.com", "aa/apis/example.com/v3", "bb/openapi/v3/apis/example.com/v1"} {
		if code, _ := w.do(t, http.MethodGet, elsewhere, "", ""); code != http.StatusNotFound {
			t.Errorf("%s: %d", elsewhere, code)
		}
	}
	d.DeletionTimestamp = &metav1.Time{}
	w.define(t, "aa", d)
	list = metav1.APIResourceList{}
	w.ask(t, "aa/apis/example.com/v1", "application/json", &list)
	if slices.Contains(list.APIResources[0].Verbs, "create") {
		t.Error("what is being deleted can be created")
	}
}

func TestSchemasAreFoundByWhatTheySay(t *testing.T) {
	w := newWorld(t)
	w.define(t, "aa", widgets(`, "size": {"type": "integer"}`))
	w.define(t, "bb", widgets(`, "size": {"type": "integer"}`))
	w.define(t, "cc", widgets(""))
	at := map[string]string{}
	for _, cluster := range []string{"aa", "bb", "cc"} {
		var index handler3.OpenAPIV3Discovery
		w.ask(t, cluster+"/openapi/v3", "application/json", &index)
		if index.Paths["apis/built.in/v1"].ServerRelativeURL == "" {
			t.Errorf("the index of %s lacks what is built in: %v", cluster, index)
		}
		at[cluster] = index.Paths["apis/example.com/v1"].ServerRelativeURL
	}
	if at["aa"] != at["bb"] || at["aa"] == at["cc"] || at["aa"] == "" {
		t.Errorf("the schemas are at %v: want the same URL where the same is said", at)
	}
	var doc map[string]any
	header := w.ask(t, "aa"+at["aa"], "application/json", &doc)
	if !strings.Contains(header.Get("Cache-Control"), "immutable") {
		t.Errorf("clients may not keep what its URL identifies: %v", header)
	}
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"com.example.v1.Widget"`, `"size"`, `/apis/example.com/v1/namespaces/{namespace}/widgets/{name}`} {
		if !strings.Contains(string(text), part) {
			t.Errorf("the schemas lack %s", part)
		}
	}
	if header := w.ask(t, "aa/openapi/v3/apis/example.com/v1?hash=old", "application/json", &doc); strings.Contains(header.Get("Cache-Control"), "immutable") {
		t.Error("what was asked for by another hash is kept")
	}
}

// Clients ask again with what they have, and in the encodings that they know.
func TestSchemasAreServedAsClientsAcceptThem(t *testing.T) {
	w := newWorld(t)
	w.define(t, "aa", widgets(`, "size": {"type": "integer"}`))
	get := func(accept, have string) (int, http.Header, []byte) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/clusters/aa/openapi/v3/apis/example.com/v1", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		req.Header.Set("If-None-Match", have)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header, body
	}
	const protobuf = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
	for range 2 { // made, and kept
		code, header, text := get("application/json", "")
		if code != http.StatusOK || !json.Valid(text) || header.Get("Content-Type") != "application/json" || header.Get("ETag") == "" {
			t.Errorf("in JSON: %d %v", code, header)
		}
		binary, binaryHeader, bytes := get(protobuf, "")
		if binary != http.StatusOK || json.Valid(bytes) || !strings.Contains(binaryHeader.Get("Content-Type"), "protobuf") || len(bytes) == 0 {
			t.Errorf("in protobuf: %d %v", binary, binaryHeader)
		}
		if code, _, body := get("application/json", header.Get("ETag")); code != http.StatusNotModified || len(body) != 0 {
			t.Errorf("whoever has it already: %d, %d bytes", code, len(body))
		}
		if code, _, _ := get("text/html", ""); code != http.StatusNotAcceptable {
			t.Errorf("what it is not in: %d", code)
		}
	}
}
