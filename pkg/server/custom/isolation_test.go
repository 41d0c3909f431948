package custom

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// neighbour is a kind in a cluster.
type neighbour struct {
	cluster, group, plural, kind string
	clusterScoped                bool
}

func (n neighbour) definition(properties string) *apiextensionsv1.CustomResourceDefinition {
	d := widgets(properties)
	d.Name, d.Spec.Group = n.plural+"."+n.group, n.group
	d.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: n.plural, Singular: strings.ToLower(n.kind), Kind: n.kind, ListKind: n.kind + "List"}
	d.Status.AcceptedNames = d.Spec.Names
	if n.clusterScoped {
		d.Spec.Scope = apiextensionsv1.ClusterScoped
	}
	return d
}

// everywhere is the path of its objects in all namespaces, and in that of those in one.
func (n neighbour) everywhere() string { return n.cluster + "/apis/" + n.group + "/v1/" + n.plural }
func (n neighbour) in(namespace string) string {
	if n.clusterScoped {
		return n.everywhere()
	}
	return n.cluster + "/apis/" + n.group + "/v1/namespaces/" + namespace + "/" + n.plural
}

func (n neighbour) object(name string) string {
	return fmt.Sprintf(`{"apiVersion":"%s/v1","kind":%q,"metadata":{"name":%q,"labels":{"l":"x"}},"spec":{"color":"red"}}`, n.group, n.kind, name)
}

// What is done with the objects of one kind of one cluster, by whatever request, is done to no others, however much
// they are alike.
func TestWhateverIsDoneToCustomObjectsIsDoneToNoOthers(t *testing.T) {
	me := neighbour{"aaa", "example.com", "widgets", "Widget", false}
	others := []neighbour{
		{"bb", "example.com", "widgets", "Widget", false},       // another cluster
		{"aa", "example.com", "widgets", "Widget", false},       // whose name begins mine
		{"aaaa", "example.com", "widgets", "Widget", false},     // or that mine begins
		{"cc", "example.com", "widgets", "Widget", true},        // of another scope
		{"dd", "example.com", "widgets", "Gadget", false},       // of another kind
		{"aaa", "example.com", "widgetries", "Widgetry", false}, // a kind that mine begins
		{"aaa", "example.com", "wids", "Widge", false},          // and one that begins mine
		{"aaa", "example.com", "defaults", "default", true},     // a kind that is named as a namespace
		// a kind whose objects are named as my namespace
		{"aaa", "example.com", "nameds", "Named", true},
		{"aaa", "com", "widgets", "Widget", false},                 // a group that ends mine
		{"aaa", "example.com.au", "widgets", "Widget", false},      // and one that mine begins
		{"aaa", "widget.example.com", "defaults", "default", true}, // and one that has mine
	}
	w := newWorld(t)
	var watches []<-chan string
	for n, o := range append(others, me) {
		w.define(t, logicalcluster.Name(o.cluster), o.definition(fmt.Sprintf(`, "mine": {"type": "string", "default": "of %d"}`, n)))
		for _, name := range []string{"x", "default", "widgets"} {
			w.create(t, o.in("default"), o.object(name))
		}
		if n < len(others) {
			from := w.get(t, o.everywhere())["metadata"].(map[string]any)["resourceVersion"].(string)
			watches = append(watches, w.watch(t, o.everywhere()+"?watch=true&resourceVersion="+from))
		}
	}
	mine := me.in("default")
	json, merge := "application/json", "application/merge-patch+json"
	for _, c := range []struct{ method, path, kind, body string }{
		{http.MethodPut, mine + "/x", json, me.object("x")},
		{http.MethodPatch, mine + "/x", merge, `{"spec":{"color":"blue"}}`},
		{http.MethodPatch, mine + "/y?fieldManager=me", "application/apply-patch+yaml", me.object("y")},
		{http.MethodPatch, mine + "/x/status", merge, `{"status":{"a":1}}`},
		{http.MethodPost, mine, json, strings.Replace(me.object("z"), `"name":"z"`, `"generateName":"z-"`, 1)},
		{http.MethodDelete, mine + "/x", json, ""},
		{http.MethodDelete, mine + "?labelSelector=l%3Dx&fieldSelector=spec.color%3Dblue", json, ""},
		{http.MethodDelete, mine + "?limit=1", json, ""},
		{http.MethodDelete, mine, json, ""},
	} {
		code, out := w.do(t, c.method, c.path, c.kind, c.body)
		if code >= 300 && !(code == http.StatusNotFound && strings.HasSuffix(c.path, "/x")) && code != http.StatusConflict && code != http.StatusUnprocessableEntity {
			t.Errorf("%s %s: %d %v", c.method, c.path, code, out)
		}
	}
	if got := names(w.get(t, me.everywhere())); len(got) != 0 {
		t.Errorf("left of mine: %v", got)
	}
	for n, o := range others {
		for _, path := range []string{
			o.everywhere(), o.in("default"), o.in("default") + "?labelSelector=l%3Dx", o.in("default") + "?fieldSelector=spec.color%3Dred", o.everywhere() + "?limit=5",
			o.everywhere() + "?resourceVersion=0",
		} {
			list := w.get(t, path)
			if got := names(list); !slices.Equal(got, []string{"default", "widgets", "x"}) {
				t.Errorf("%s: %v", path, got)
			}
			for _, item := range list["items"].([]any) {
				item := item.(map[string]any)
				if got := specOf(item)["mine"]; got != fmt.Sprint("of ", n) || item["kind"] != o.kind {
					t.Errorf("%s has a %v with the defaults %v", path, item["kind"], got)
				}
			}
		}
		w.touch(t, o.in("default")+"/x")
		if got := next(t, watches[n], 1); got[0] != "MODIFIED x" {
			t.Errorf("a watch of %s has seen %q", o.everywhere(), got)
		}
	}
}

// A token says where a list goes on. With one of another list a user is shown no more than its own.
func TestATokenToContinueLeadsToNoOtherList(t *testing.T) {
	w := newWorld(t)
	lists := map[string]neighbour{
		"mine": {"aa", "example.com", "widgets", "Widget", false}, "another cluster's": {"bb", "example.com", "widgets", "Widget", false},
		"another kind's": {"aa", "example.com", "gadgets", "Gadget", false}, "another scope's": {"cc", "example.com", "widgets", "Widget", true},
	}
	tokens := map[string]string{}
	for _, o := range lists {
		w.define(t, logicalcluster.Name(o.cluster), o.definition(""))
		for n := range 5 {
			w.create(t, o.in("default"), o.object(fmt.Sprintf("%d-%s-of-%s", n, strings.ToLower(o.kind), o.cluster)))
		}
	}
	for what, o := range lists {
		tokens[what] = w.get(t, o.in("default")+"?limit=2")["metadata"].(map[string]any)["continue"].(string)
		tokens[what+", of all namespaces"] = w.get(t, o.everywhere()+"?limit=2")["metadata"].(map[string]any)["continue"].(string)
	}
	for _, start := range []string{
		"../../../bb/example.com/Widget/default/", "../Gadget/default/", "/../Gadget/", "..", "../", "../../../../", "default/../../../../bb/", "\\u0000", "", "/registry/custom/bb/",
		"0-widget-of-aa\\u0000/../../../../bb/example.com/Widget/", "./", "//", "\xff",
	} {
		tokens["forged "+start] = base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":-1,"start":"` + start + `"}`))
		tokens["forged, of the past "+start] = base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":3,"start":"` + start + `"}`))
	}
	for what, token := range tokens {
		for in, o := range lists {
			mine := strings.ToLower(o.kind) + "-of-" + o.cluster
			for _, path := range []string{o.in("default"), o.everywhere()} {
				code, out := w.do(t, http.MethodGet, path+"?limit=100&continue="+url.QueryEscape(token), "", "")
				if code != http.StatusOK {
					if code != http.StatusBadRequest && code != http.StatusGone {
						t.Errorf("%s in %s: %d %v", what, in, code, out)
					}
					continue
				}
				for _, name := range names(out) {
					if !strings.HasSuffix(name, mine) {
						t.Errorf("the token %q shows in %s: %s", what, path, name)
					}
				}
			}
		}
	}
}

// Names and namespaces come from paths, and become parts of keys.
func TestNoNameOfACustomObjectLeadsElsewhere(t *testing.T) {
	w := newWorld(t)
	for _, cluster := range []logicalcluster.Name{"aa", "bb"} {
		w.define(t, cluster, widgets(""))
	}
	w.create(t, "bb"+widgetsIn, widget("treasure", `{"color":"gold"}`))
	for _, name := range []string{
		"../../../../bb/example.com/Widget/default/treasure", "..", ".", "a/b", "../treasure", "", "x%2f..", "%2e%2e", "a/../../x",
	} {
		if code, out := w.do(t, http.MethodPost, "aa"+widgetsIn, "application/json", widget(name, `{}`)); code != http.StatusUnprocessableEntity {
			t.Errorf("created %q: %d %v", name, code, out)
		}
		generated := strings.Replace(widget(name+"/", `{}`), `"name"`, `"generateName"`, 1)
		if code, out := w.do(t, http.MethodPost, "aa"+widgetsIn, "application/json", generated); code != http.StatusUnprocessableEntity {
			t.Errorf("generated from %q: %d %v", name, code, out)
		}
	}
	for _, in := range []string{"aa" + widgetsIn, "aa/apis/example.com/v1/namespaces/..%2f..%2f..%2fbb%2fexample.com%2fWidget%2fdefault/widgets", "aa/apis/example.com/v1/namespaces/%2e%2e/widgets"} {
		for _, name := range []string{
			"..%2f..%2f..%2f..%2fbb%2fexample.com%2fWidget%2fdefault%2ftreasure", "%2e%2e%2ftreasure", "%2e%2e", "treasure%00", "..%2ftreasure", "treasure%2f",
			"%2e%2e/%2e%2e/bb/example.com/Widget/default/treasure", "treasure",
		} {
			for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodPatch, http.MethodPut} {
				kind, body := "application/merge-patch+json", `{"spec":{"color":"lead"}}`
				if method == http.MethodPut {
					kind, body = "application/json", widget("treasure", `{}`)
				}
				if code, out := w.do(t, method, in+"/"+name, kind, body); code < http.StatusBadRequest && code/100 != 3 {
					if method == http.MethodPut && code == http.StatusCreated && out["metadata"].(map[string]any)["annotations"].(map[string]any)["kcp.io/cluster"] == "aa" {
						continue // an update that creates, in its own cluster
					}
					if method != http.MethodPut && strings.HasSuffix(in, "default/widgets") && name == "treasure" {
						continue // what that has created
					}
					t.Errorf("%s %s/%s: %d %v", method, in, name, code, out)
				}
			}
		}
	}
	if got := w.get(t, "bb"+widgetsIn+"/treasure"); specOf(got)["color"] != "gold" || got["metadata"].(map[string]any)["generation"] != 1.0 {
		t.Errorf("the other cluster's object: %v", got)
	}
	if got := names(w.get(t, "bb/apis/example.com/v1/widgets")); !slices.Equal(got, []string{"treasure"}) {
		t.Errorf("in the other cluster: %v", got)
	}
}

// A definition is deleted and made anew, as something else. Whoever removes its finalizer by hand leaves objects
// behind: nothing is shown of them as what it is not.
func TestADefinitionThatIsMadeAnewServesNothingOfAnotherKindOrScope(t *testing.T) {
	w := newWorld(t)
	first := neighbour{"aa", "example.com", "widgets", "Widget", false}
	w.define(t, "aa", first.definition(""))
	w.create(t, first.in("default"), first.object("x"))
	w.create(t, first.in("a"), first.object("x"))

	other := neighbour{"aa", "example.com", "widgets", "Gadget", false}
	w.define(t, "aa", other.definition(""))
	if got := names(w.get(t, other.everywhere())); len(got) != 0 {
		t.Errorf("as another kind: %v", got)
	}
	scoped := neighbour{"aa", "example.com", "widgets", "Widget", true}
	w.define(t, "aa", scoped.definition(""))
	events := w.watch(t, scoped.everywhere()+"?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
	for _, query := range []string{"", "?resourceVersion=0", "?fieldSelector=spec.color%3Dred", "?labelSelector=l%3Dx", "?limit=1"} {
		if got := names(w.get(t, scoped.everywhere()+query)); len(got) != 0 {
			t.Errorf("as another scope%s: %v", query, got)
		}
	}
	// whose key begins those of what was in the namespace
	w.create(t, scoped.everywhere(), scoped.object("default"))
	if got := next(t, events, 2); !slices.Equal(got, []string{"BOOKMARK", "ADDED default"}) {
		t.Errorf("a watch shows %q", got)
	}
	if code, out := w.do(t, http.MethodDelete, scoped.everywhere()+"/default", "", ""); code != http.StatusOK {
		t.Errorf("%d %v", code, out)
	}
	w.create(t, scoped.everywhere(), scoped.object("default"))

	w.define(t, "aa", first.definition("")) // and back
	if got := names(w.get(t, first.everywhere())); !slices.Equal(got, []string{"x", "x"}) {
		t.Errorf("as it was first: %v", got)
	}
	if got := names(w.get(t, first.in("default"))); !slices.Equal(got, []string{"x"}) {
		t.Errorf("in a namespace: %v", got)
	}
}

// What a definition does not have is no resource, and writes nothing.
func TestSubresourcesAreThoseOfTheDefinition(t *testing.T) {
	w := newWorld(t)
	plain, scaled := widgets(""), widgets(`, "replicas": {"type": "integer"}`)
	plain.Spec.Versions[0].Subresources = nil
	path := ".status.selector"
	scaled.Spec.Versions[0].Subresources.Scale = &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas", LabelSelectorPath: &path}
	w.define(t, "aa", plain)
	w.define(t, "bb", scaled)
	for _, cluster := range []string{"aa", "bb"} {
		w.create(t, cluster+widgetsIn, strings.Replace(widget("x", `{"replicas":2}`), `"spec"`, `"status":{"replicas":5,"selector":"a=b"},"spec"`, 1))
	}
	if got := w.get(t, "aa"+widgetsIn+"/x")["status"]; got == nil {
		t.Error("without subresource status a status is like all else")
	}
	if got := w.get(t, "bb"+widgetsIn+"/x")["status"]; got != nil {
		t.Errorf("a creation has set the status: %v", got)
	}
	merge := "application/merge-patch+json"
	for _, sub := range []string{"status", "scale", "nothing"} {
		for method, body := range map[string]string{http.MethodGet: "", http.MethodPatch: `{"status":{"a":1},"spec":{"replicas":9}}`} {
			if code, _ := w.do(t, method, "aa"+widgetsIn+"/x/"+sub, merge, body); code != http.StatusNotFound {
				t.Errorf("%s of %s, which there is not: %d", method, sub, code)
			}
		}
	}
	if code, out := w.do(t, http.MethodPatch, "bb"+widgetsIn+"/x/status", merge, `{"status":{"replicas":4,"selector":"a=b"},"spec":{"color":"red","replicas":9}}`); code != http.StatusOK {
		t.Fatalf("%d %v", code, out)
	}
	scale := w.get(t, "bb"+widgetsIn+"/x/scale")
	if scale["kind"] != "Scale" || specOf(scale)["replicas"] != 2.0 || scale["status"].(map[string]any)["replicas"] != 4.0 || scale["status"].(map[string]any)["selector"] != "a=b" {
		t.Errorf("the scale is %v", scale)
	}
	if code, out := w.do(t, http.MethodPatch, "bb"+widgetsIn+"/x/scale", merge, `{"spec":{"replicas":7},"status":{"replicas":9}}`); code != http.StatusOK {
		t.Fatalf("%d %v", code, out)
	}
	x := w.get(t, "bb"+widgetsIn+"/x")
	if specOf(x)["replicas"] != 7.0 || specOf(x)["color"] != nil || x["status"].(map[string]any)["replicas"] != 4.0 {
		t.Errorf("after the subresources: %v %v", x["spec"], x["status"])
	}
	if code, _ := w.do(t, http.MethodPatch, "bb"+widgetsIn+"/x/scale", merge, `{"spec":{"replicas":-1}}`); code != http.StatusUnprocessableEntity {
		t.Errorf("fewer than none: %d", code)
	}
}
