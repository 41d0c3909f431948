package custom

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/regent-project/regent/test/until"
)

// hook is a conversion webhook. In version v1 a Widget has spec.color, in version v2 it has spec.paint.
type hook struct {
	*httptest.Server
	calls atomic.Int64
	// behave, if it is there, answers in place of the webhook.
	behave atomic.Pointer[func(w http.ResponseWriter, req *http.Request, answer map[string]any)]
}

type object1 = map[string]any

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{}
	h.Server = httptest.NewUnstartedServer(http.HandlerFunc(h.serve))
	h.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that do not like its certificate
	h.StartTLS()
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
	})
	return h
}

func (h *hook) serve(w http.ResponseWriter, req *http.Request) {
	h.calls.Add(1)
	var review struct {
		Request struct {
			UID               string
			DesiredAPIVersion string
			Objects           []object1
		}
	}
	_ = json.NewDecoder(req.Body).Decode(&review)
	for _, o := range review.Request.Objects {
		o["apiVersion"] = review.Request.DesiredAPIVersion
		from, to := "color", "paint"
		if review.Request.DesiredAPIVersion == "example.com/v1" {
			from, to = to, from
		}
		if spec, ok := o["spec"].(object1); ok && spec[from] != nil {
			spec[to] = spec[from]
			delete(spec, from)
		}
	}
	answer := object1{"uid": review.Request.UID, "convertedObjects": review.Request.Objects, "result": object1{"status": "Success"}}
	if behave := h.behave.Load(); behave != nil {
		(*behave)(w, req, answer)
		return
	}
	reply(w, answer)
}

func reply(w http.ResponseWriter, answer object1) {
	_ = json.NewEncoder(w).Encode(object1{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": answer})
}

func (h *hook) set(behave func(http.ResponseWriter, *http.Request, map[string]any)) {
	if behave == nil {
		h.behave.Store(nil)
		return
	}
	h.behave.Store(&behave)
}

// hang has the webhook answer nothing until the caller gives up or the test is over.
func (h *hook) hang(t *testing.T) {
	t.Helper()
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	h.set(func(_ http.ResponseWriter, req *http.Request, _ map[string]any) {
		select {
		case <-req.Context().Done():
		case <-over:
		}
	})
}

// converted is a definition in two versions, v1 with spec.color and v2 with spec.paint, of which one is stored, and a
// webhook that converts between them.
func (h *hook) converted(stored string) *apiextensionsv1.CustomResourceDefinition {
	d := widgets("")
	second := *d.Spec.Versions[0].DeepCopy()
	second.Name = "v2"
	second.SelectableFields[0].JSONPath = ".spec.paint"
	props := second.Schema.OpenAPIV3Schema.Properties["spec"].Properties
	props["paint"] = props["color"]
	delete(props, "color")
	d.Spec.Versions = append(d.Spec.Versions, second)
	for i := range d.Spec.Versions {
		d.Spec.Versions[i].Storage = d.Spec.Versions[i].Name == stored
	}
	d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig: &apiextensionsv1.WebhookClientConfig{
				URL: &h.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw}),
			},
		},
	}
	return d
}

const widgets2 = "/apis/example.com/v2/namespaces/default/widgets"

func widget2(name, spec string) string {
	return strings.Replace(widget(name, spec), "example.com/v1", "example.com/v2", 1)
}

func TestAWebhookConvertsWhatIsStoredInOtherVersions(t *testing.T) {
	w, h := newWorld(t), newHook(t)
	w.define(t, "aa", h.converted("v1"))
	w.create(t, "aa"+widgetsIn, widget("a", `{"color":"red"}`))
	if h.calls.Load() != 0 {
		t.Errorf("%d calls for what is stored as it was sent", h.calls.Load())
	}
	w.create(t, "aa"+widgets2, widget2("b", `{"paint":"blue"}`))
	for version, field := range map[string]string{"v1": "color", "v2": "paint"} {
		in := "aa" + strings.Replace(widgetsIn, "v1", version, 1)
		for name, color := range map[string]string{"a": "red", "b": "blue"} {
			got := w.get(t, in+"/"+name)
			if got["apiVersion"] != "example.com/"+version || !reflect.DeepEqual(specOf(got), object1{field: color}) {
				t.Errorf("%s in %s: %v %v", name, version, got["apiVersion"], got["spec"])
			}
		}
		if got := names(w.get(t, in)); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("a list of %s: %v", version, got)
		}
		if got := names(w.get(t, in+"?fieldSelector=spec."+field+"%3Dblue")); !slices.Equal(got, []string{"b"}) {
			t.Errorf("selected by %s: %v", field, got)
		}
	}
	if code, out := w.do(t, http.MethodPatch, "aa"+widgets2+"/a", "application/merge-patch+json", `{"spec":{"paint":"green"}}`); code != http.StatusOK || specOf(out)["paint"] != "green" {
		t.Errorf("patch: %d %v", code, out)
	}
	applied := strings.Replace(widget2("a", `{"paint":"black"}`), `"metadata"`, `"metadata"`, 1)
	if code, out := w.do(t, http.MethodPatch, "aa"+widgets2+"/a?fieldManager=me&force=true", "application/apply-patch+yaml", applied); code != http.StatusOK || specOf(out)["paint"] != "black" {
		t.Errorf("apply: %d %v", code, out)
	}
	if got := specOf(w.get(t, "aa"+widgetsIn+"/a")); got["color"] != "black" {
		t.Errorf("in v1: %v", got)
	}
}

// A list of n objects is a call for each 256 KiB, and not n calls.
func TestAListIsConvertedTogether(t *testing.T) {
	w, h := newWorld(t), newHook(t)
	w.define(t, "aa", h.converted("v1"))
	for n := range 30 {
		w.create(t, "aa"+widgetsIn, widget(fmt.Sprintf("w%02d", n), `{"color":"red"}`))
	}
	if got := len(names(w.get(t, "aa"+widgets2))); got != 30 || h.calls.Load() != 1 {
		t.Errorf("%d objects in %d calls, want 30 in 1", got, h.calls.Load())
	}
	w.get(t, "aa"+widgets2)
	if h.calls.Load() != 1 {
		t.Errorf("what has not changed is converted again: %d calls", h.calls.Load())
	}
}

func TestWatchesShowWhatAWebhookConverts(t *testing.T) {
	w, h := newWorld(t), newHook(t)
	w.define(t, "aa", h.converted("v1"))
	watches := make([]<-chan string, 10)
	for n := range watches {
		watches[n] = w.watch(t, "aa"+widgets2+"?watch=true&fieldSelector=spec.paint%3Dred")
	}
	w.create(t, "aa"+widgetsIn, widget("a", `{"color":"blue"}`))
	w.create(t, "aa"+widgetsIn, widget("b", `{"color":"red"}`))
	if code, out := w.do(t, http.MethodPatch, "aa"+widgets2+"/b", "application/merge-patch+json", `{"spec":{"paint":"blue"}}`); code != http.StatusOK {
		t.Fatalf("patch: %d %v", code, out)
	}
	for n, events := range watches {
		if got := next(t, events, 2); !slices.Equal(got, []string{"ADDED b", "DELETED b"}) {
			t.Errorf("watcher %d: %q", n, got)
		}
	}
}

// A webhook is a tenant's. Whatever it answers, its own cluster gets an error that says so, and nothing else happens.
func TestAWebhookThatLiesIsToldOf(t *testing.T) {
	object := func(answer object1) object1 { return answer["convertedObjects"].([]object1)[0] }
	metadata := func(answer object1) object1 { return object(answer)["metadata"].(object1) }
	for name, tc := range map[string]struct {
		lie  func(w http.ResponseWriter, req *http.Request, answer map[string]any)
		want string
	}{
		"another name": {func(w http.ResponseWriter, _ *http.Request, answer map[string]any) {
			metadata(answer)["name"] = "other"
			reply(w, answer)
		}, "must have the same name"},
		"another namespace": {func(w http.ResponseWriter, _ *http.Request, answer map[string]any) {
			metadata(answer)["namespace"] = "other"
			reply(w, answer)
		}, "must have the same namespace"},
		"another uid": {func(w http.ResponseWriter, _ *http.Request, answer map[string]any) {
			metadata(answer)["uid"] = "other"
			reply(w, answer)
		}, "must have the same UID"},
		"fewer objects": {func(w http.ResponseWriter, _ *http.Request, answer map[string]any) {
			answer["convertedObjects"] = []object1{}
			reply(w, answer)
		}, "returned 0 objects, expected 1"},
		"another version": {func(w http.ResponseWriter, _ *http.Request, answer map[string]any) {
			object(answer)["apiVersion"] = "example.com/v9"
			reply(w, answer)
		}, "invalid groupVersion"},
		"another kind": {func(w http.ResponseWriter, _ *http.Request, answer map[string]any) {
			object(answer)["kind"] = "Gadget"
			reply(w, answer)
		}, "invalid kind"},
		"no object": {func(w http.ResponseWriter, _ *http.Request, answer map[string]any) {
			answer["convertedObjects"] = []any{nil}
			reply(w, answer)
		}, "conversion webhook"},
		"no metadata": {func(w http.ResponseWriter, _ *http.Request, answer map[string]any) {
			delete(object(answer), "metadata")
			reply(w, answer)
		}, "conversion webhook"},
		"metadata of another type": {func(w http.ResponseWriter, _ *http.Request, answer map[string]any) {
			object(answer)["metadata"] = 7
			reply(w, answer)
		}, "conversion webhook"},
		"another request's answer": {func(w http.ResponseWriter, _ *http.Request, answer map[string]any) {
			answer["uid"] = "other"
			reply(w, answer)
		}, "expected response.uid"},
		"a failure": {func(w http.ResponseWriter, _ *http.Request, answer map[string]any) {
			answer["result"] = object1{"status": "Failure", "message": "I do not like it"}
			reply(w, answer)
		}, "I do not like it"},
		"an error": {func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { http.Error(w, "broken", 500) }, "conversion webhook"},
		"garbage":  {func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { _, _ = io.WriteString(w, "\x00{") }, "conversion webhook"},
		"a redirect": {func(w http.ResponseWriter, req *http.Request, _ map[string]any) {
			http.Redirect(w, req, "https://127.0.0.1:2379/", http.StatusTemporaryRedirect)
		}, "redirects are not followed"},
		"a body without an end": {func(w http.ResponseWriter, req *http.Request, _ map[string]any) {
			for req.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}, "answers more than"},
	} {
		t.Run(name, func(t *testing.T) {
			w, h := newWorld(t), newHook(t)
			w.define(t, "aa", h.converted("v1"))
			w.define(t, "bb", widgets(""))
			w.create(t, "aa"+widgetsIn, widget("a", `{"color":"red"}`))
			h.set(tc.lie)
			for _, ask := range []string{widgets2 + "/a", widgets2, widgets2 + "?fieldSelector=spec.paint%3Dred"} {
				code, out := w.do(t, http.MethodGet, "aa"+ask, "", "")
				if message, _ := out["message"].(string); code != http.StatusInternalServerError || !strings.Contains(message, tc.want) {
					t.Errorf("%s: %d %v, want %q", ask, code, out, tc.want)
				}
			}
			if code, out := w.do(t, http.MethodPost, "aa"+widgets2, "application/json", widget2("b", `{"paint":"red"}`)); code != http.StatusInternalServerError {
				t.Errorf("creation: %d %v", code, out)
			}
			if got := names(w.get(t, "aa"+widgetsIn)); !slices.Equal(got, []string{"a"}) {
				t.Errorf("in the version that is stored: %v", got)
			}
			w.create(t, "bb"+widgetsIn, widget("a", `{}`))
		})
	}
}

// Controllers over all clusters find an object's cluster in its annotation.
func TestAWebhookCannotSayInWhichClusterAnObjectIs(t *testing.T) {
	w, h := newWorld(t), newHook(t)
	w.define(t, "aa", h.converted("v1"))
	w.create(t, "aa"+widgetsIn, widget("a", `{"color":"red"}`))
	for name, forged := range map[string]any{"another": object1{"kcp.io/cluster": "bb", "mine": "x"}, "none": object1{"mine": "x"}, "no annotations": nil} {
		h.set(func(w http.ResponseWriter, _ *http.Request, answer map[string]any) {
			for _, o := range answer["convertedObjects"].([]object1) {
				o["metadata"].(object1)["annotations"] = forged
			}
			reply(w, answer)
		})
		w.touch(t, "aa"+widgetsIn+"/a")
		events := w.watchRaw(t, "*/apis/example.com/v2/widgets?watch=true")
		for what, got := range map[string]map[string]any{
			"get": w.get(t, "aa"+widgets2+"/a"), "list": w.get(t, "*/apis/example.com/v2/widgets")["items"].([]any)[0].(object1), "watch": (<-events)["object"].(object1),
		} {
			annotations, _ := got["metadata"].(object1)["annotations"].(object1)
			if annotations["kcp.io/cluster"] != "aa" || forged != nil && annotations["mine"] != "x" {
				t.Errorf("%s, %s: %v", name, what, annotations)
			}
		}
		// What is stored is of its cluster, too.
		if code, out := w.do(t, http.MethodPatch, "aa"+widgets2+"/a", "application/merge-patch+json", `{"spec":{"paint":"`+strings.ReplaceAll(name, " ", "")+`"}}`); code != http.StatusOK {
			t.Fatalf("patch: %d %v", code, out)
		}
		if got := w.get(t, "aa"+widgetsIn+"/a")["metadata"].(object1)["annotations"].(object1)["kcp.io/cluster"]; got != "aa" {
			t.Errorf("%s: stored in %v", name, got)
		}
	}
}

func TestAWebhookThatIsNotThereIsToldOf(t *testing.T) {
	w, h := newWorld(t), newHook(t)
	// no resolver is asked for it
	nowhere, elsewhere, byName, unknown := "https://127.0.0.1:1/x", "https://127.1.2.3:2379/x", "https://localhost:2379/x", "https://etcd-0..example:2379/x"
	plain := strings.Replace(w.url, "http://", "https://", 1)
	// The same words for all of them, to the end: nobody learns what is behind a name.
	notReached := errNotReached.Error()
	for name, tc := range map[string]struct {
		change func(*apiextensionsv1.WebhookClientConfig)
		want   string
	}{
		"nobody listens":          {func(c *apiextensionsv1.WebhookClientConfig) { c.URL = &nowhere }, notReached},
		"a certificate of others": {func(c *apiextensionsv1.WebhookClientConfig) { c.CABundle = nil }, errNotTrusted.Error()},
		"a bundle without any":    {func(c *apiextensionsv1.WebhookClientConfig) { c.CABundle = []byte("nothing") }, "no certificate in PEM"},
		"not where it may be":     {func(c *apiextensionsv1.WebhookClientConfig) { c.URL = &elsewhere }, notReached},
		"a name that leads there": {func(c *apiextensionsv1.WebhookClientConfig) { c.URL = &byName }, notReached},
		"a name of nobody":        {func(c *apiextensionsv1.WebhookClientConfig) { c.URL = &unknown }, notReached},
		"one that speaks no TLS":  {func(c *apiextensionsv1.WebhookClientConfig) { c.URL = &plain }, notReached},
		"by service, with its name": {func(c *apiextensionsv1.WebhookClientConfig) {
			c.URL = nil
			c.Service = &apiextensionsv1.ServiceReference{Namespace: "default", Name: "kubernetes"}
		}, "by service"},
	} {
		t.Run(name, func(t *testing.T) {
			d := h.converted("v1")
			tc.change(d.Spec.Conversion.Webhook.ClientConfig)
			w.define(t, "aa", d)
			_, _ = w.do(t, http.MethodPost, "aa"+widgetsIn, "application/json", widget("a", `{"color":"red"}`))
			code, out := w.do(t, http.MethodGet, "aa"+widgets2+"/a", "", "")
			if message, _ := out["message"].(string); code != http.StatusInternalServerError || !strings.Contains(message, tc.want) || strings.HasPrefix(tc.want, "the ") && !strings.HasSuffix(message, tc.want) {
				t.Errorf("%d %v, want %q", code, out, tc.want)
			}
			w.get(t, "aa"+widgetsIn+"/a") // which needs no webhook
		})
	}
	if h.calls.Load() != 0 {
		t.Errorf("%d calls", h.calls.Load())
	}
}

func TestAWebhookThatHangsHoldsUpItsOwnOnly(t *testing.T) {
	w, h := newWorld(t), newHook(t)
	// in which this test gets on, on a busy machine, too
	w.server.handlers.converters.lanes.pause = 12 * time.Second
	w.define(t, "aa", h.converted("v1"))
	w.define(t, "bb", h.converted("v1")) // which says the same, and calls the same webhook
	w.define(t, "cc", widgets(""))
	for _, cluster := range []string{"aa", "bb", "cc"} {
		w.create(t, cluster+widgetsIn, widget("a", `{"color":"red"}`))
	}
	h.hang(t)
	hung := make(chan int, 40)
	for range cap(hung) { // more than a lane has places
		go func() {
			code, _, _ := w.send(t, http.MethodGet, "aa"+widgets2+"/a", "", "", "")
			hung <- code
		}()
	}
	until.So(t, "the webhook has been called", func() bool { return h.calls.Load() == laneWidth })
	w.create(t, "cc"+widgetsIn, widget("b", `{}`))
	w.get(t, "cc"+widgetsIn)
	w.get(t, "aa"+widgetsIn) // of the version that is stored nobody has to ask
	h.set(nil)
	w.get(t, "bb"+widgets2+"/a")
	if ended := len(hung); ended > 0 {
		t.Errorf("%d requests whose webhook hangs have ended before those that need no webhook, or one that answers", ended)
	}
	calls := h.calls.Load()
	for range cap(hung) {
		if code := <-hung; code != http.StatusInternalServerError {
			t.Errorf("a request whose webhook hangs: %d", code)
		}
	}
	if more := h.calls.Load() - calls; more > 0 {
		t.Errorf("of %d requests, %d have called the webhook after it hung", cap(hung), more)
	}
	code, out := w.do(t, http.MethodGet, "aa"+widgets2, "", "")
	if message, _ := out["message"].(string); code != http.StatusInternalServerError || !strings.Contains(message, "did not answer in time") || h.calls.Load() > calls {
		t.Errorf("right after it hung: %d %v, after %d calls, and %d before", code, out, h.calls.Load(), calls)
	}
	until.So(t, "it is asked again", func() bool {
		code, _ := w.do(t, http.MethodGet, "aa"+widgets2, "", "")
		return code == http.StatusOK
	})
}

// Requests end with their clients, and watches with whoever stops them, whether a webhook answers or not.
func TestNothingWaitsForAWebhookThatNobodyWaitsForAnyMore(t *testing.T) {
	w, h := newWorld(t), newHook(t)
	w.server.handlers.converters.callTime = time.Hour
	w.define(t, "aa", h.converted("v1"))
	var watches []<-chan string
	for range 50 {
		watches = append(watches, w.watch(t, "aa"+widgets2+"?watch=true"))
		watches = append(watches, w.watch(t, "aa"+widgets2+"?watch=true&fieldSelector=spec.paint%3Dred"))
	}
	h.hang(t)
	w.create(t, "aa"+widgetsIn, widget("a", `{"color":"red"}`))
	until.So(t, "the webhook has been called", func() bool { return h.calls.Load() >= laneWidth })
	w.define(t, "aa", widgets("")) // which ends the watches
	for _, events := range watches {
		for e := range events {
			t.Errorf("%q", e)
		}
	}
}

// What cannot be judged must not be left out in silence: an informer would take it for deleted.
func TestAListByAFieldFailsWithItsWebhook(t *testing.T) {
	w, h := newWorld(t), newHook(t)
	w.define(t, "aa", h.converted("v1"))
	w.create(t, "aa"+widgetsIn, widget("a", `{"color":"red"}`))
	events := w.watch(t, "aa"+widgets2+"?watch=true&fieldSelector=spec.paint%3Dred")
	if got := next(t, events, 1); got[0] != "ADDED a" {
		t.Fatalf("%q", got)
	}
	h.set(func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { http.Error(w, "broken", 500) })
	if code, out := w.do(t, http.MethodGet, "aa"+widgets2+"?fieldSelector=spec.paint%3Dred", "", ""); code != http.StatusInternalServerError {
		t.Errorf("a list: %d %v", code, out)
	}
	w.touch(t, "aa"+widgetsIn+"/a")
	if got := next(t, events, 1); !strings.HasPrefix(got[0], "ERROR") {
		t.Errorf("a watch: %q", got)
	}
	if e, ok := <-events; ok {
		t.Errorf("it goes on with %q", e)
	}
}

// Garbage collection, and the deletion of definitions, namespaces and clusters, must not depend on a tenant's webhook.
func TestControllersReadMetadataAndDeleteWithoutAWebhook(t *testing.T) {
	w, h := newWorld(t), newHook(t)
	w.define(t, "aa", h.converted("v1"))
	w.create(t, "aa"+widgetsIn, widget("old", `{"color":"red"}`))
	held := strings.Replace(widget("held", `{"color":"red"}`), `"metadata":{`, `"metadata":{"finalizers":["example.com/a","example.com/b"],`, 1)
	w.create(t, "aa"+widgetsIn, held)
	w.define(t, "aa", h.converted("v2"))
	w.create(t, "aa"+widgets2, widget2("new", `{"paint":"blue"}`))
	h.hang(t)
	calls := h.calls.Load()
	w.own.Store(true)
	const metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	const metadatas = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	if code, out := w.accept(t, http.MethodGet, "aa/apis/example.com/v2/widgets", metadatas, "", ""); code != http.StatusOK || !slices.Equal(names(out), []string{"held", "new", "old"}) {
		t.Errorf("list: %d %v", code, out)
	}
	for _, name := range []string{"old", "new", "held"} {
		if code, out := w.accept(t, http.MethodGet, "aa"+widgets2+"/"+name, metadata, "", ""); code != http.StatusOK {
			t.Errorf("get %s: %d %v", name, code, out)
		}
	}
	for _, name := range []string{"held", "new"} {
		patch := `{"metadata":{"finalizers":["example.com/b"]}}`
		if code, out := w.accept(t, http.MethodPatch, "aa"+widgets2+"/"+name, metadata, "application/merge-patch+json", patch); code != http.StatusOK {
			t.Errorf("patch %s: %d %v", name, code, out)
		}
	}
	for _, name := range []string{"held", "new", "old"} {
		if code, out := w.do(t, http.MethodDelete, "aa"+widgets2+"/"+name, "application/json", ""); code != http.StatusOK {
			t.Errorf("delete %s: %d %v", name, code, out)
		}
	}
	if got := h.calls.Load(); got != calls {
		t.Errorf("the webhook was called %d times", got-calls)
	}
	w.own.Store(false)
	h.set(nil)
	// What they did not mean to change is as it was, in the version in which it was stored.
	for name, field := range map[string]string{"held": "red", "new": "blue"} {
		until.So(t, "the webhook is asked again", func() bool {
			code, out := w.do(t, http.MethodGet, "aa"+widgets2+"/"+name, "", "")
			return code == http.StatusOK && specOf(out)["paint"] == field
		})
		got := w.get(t, "aa"+widgets2+"/"+name)["metadata"].(object1)
		if !reflect.DeepEqual(got["finalizers"], []any{"example.com/b"}) || got["deletionTimestamp"] == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	if code, _ := w.do(t, http.MethodGet, "aa"+widgets2+"/old", "", ""); code != http.StatusNotFound {
		t.Errorf("the deleted one: %d", code)
	}
}

// Tenants make up names and versions. A series for each would be kept for ever.
func TestWhatIsMeasuredOfWebhooksDoesNotGrowWithTheirNumber(t *testing.T) {
	w, h := newWorld(t), newHook(t)
	w.define(t, "aa", h.converted("v1"))
	w.create(t, "aa"+widgetsIn+"?fieldManager=one", widget("a", `{"color":"red"}`))
	applied := widget2("a", `{"paint":"blue"}`)
	// Of what managers have applied in another version upstream converts the objects itself.
	if code, out := w.do(t, http.MethodPatch, "aa"+widgets2+"/a?fieldManager=two&force=true", "application/apply-patch+yaml", applied); code != http.StatusOK {
		t.Fatalf("%d %v", code, out)
	}
	measured, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	some := false
	for _, m := range measured {
		some = some || m.GetName() == "apiserver_conversion_webhook_duration_seconds"
		for _, series := range m.GetMetric() {
			for _, label := range series.GetLabel() {
				if strings.Contains(label.GetValue(), "widgets") {
					t.Errorf("%s has %s", m.GetName(), label)
				}
			}
		}
	}
	if !some {
		t.Error("nothing is measured")
	}
}
