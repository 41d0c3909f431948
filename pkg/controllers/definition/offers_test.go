package definition

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
)

// exporter is shard m, which has the export parcels in cluster maker.
type exporter struct {
	offer *controllers.Offer // nil: there is no such export
	fault error
	reads int
	was   *controllers.Offer // what the last read knew
	// meanwhile is called while it is read.
	meanwhile func()
}

func (e *exporter) Offer(_ context.Context, shard string, of clusters.Key, was *controllers.Offer) (*controllers.Offer, error) {
	e.reads++
	e.was = was
	if e.meanwhile != nil {
		e.meanwhile()
	}
	switch {
	case e.fault != nil:
		return nil, e.fault
	case e.offer == nil || shard != "m" || of != (clusters.Key{Cluster: "maker", Name: "parcels"}):
		return nil, apierrors.NewNotFound(schema.GroupResource{}, of.Name)
	}
	return e.offer, nil
}

func (e *exporter) Changes(context.Context, string) (controllers.Changes, error) {
	return controllers.Changes{}, e.fault
}

// offering is an offer of some resources, of which each has a schema that says the same as its name.
func offering(version string, plurals ...string) *controllers.Offer {
	out := &controllers.Offer{Export: &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "parcels", UID: "e1", ResourceVersion: version}}, Schemas: map[string]resourceSchema{}}
	for _, plural := range plurals {
		named := "v1." + plural + ".example.com"
		out.Export.Spec.Resources = append(out.Export.Spec.Resources, apisv1alpha2.ResourceSchema{Name: plural, Group: "example.com", Schema: named})
		kind := strings.ToUpper(plural[:1]) + plural[1:]
		out.Schemas[named] = &apisv1alpha1.APIResourceSchema{
			ObjectMeta: metav1.ObjectMeta{Name: named, UID: types.UID("uid-of-" + plural), Annotations: map[string]string{logicalcluster.AnnotationKey: "maker"}},
			Spec: apisv1alpha1.APIResourceSchemaSpec{
				Group: "example.com", Scope: apiextensionsv1.ClusterScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind, ListKind: kind + "List"},
				Versions: []apiVersion{{Name: "v1", Served: true, Storage: true}},
			},
		}
	}
	return out
}

// probing answers like this shard to whoever would keep schemas. It cannot keep those of resource unfits.
type probing struct{ probes []string }

func (p *probing) RoundTrip(req *http.Request) (*http.Response, error) {
	var s apisv1alpha1.APIResourceSchema
	if err := json.NewDecoder(req.Body).Decode(&s); err != nil {
		return nil, err
	}
	if req.Method != http.MethodPost || req.URL.Query().Get("dryRun") != metav1.DryRunAll || !strings.Contains(req.URL.Path, "/clusters/"+clusters.BoundSchemas.String()+"/") {
		return nil, fmt.Errorf("%s %s is no probe", req.Method, req.URL)
	}
	p.probes = append(p.probes, s.Spec.Names.Plural)
	var says any = &s
	code := http.StatusCreated
	if s.Spec.Names.Plural == "unfits" {
		status := apierrors.NewInvalid(schema.GroupKind{}, s.Name, nil).Status()
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		status.Message, code, says = "it has a field of tomorrow", http.StatusUnprocessableEntity, &status
	}
	body, err := json.Marshal(says)
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: req}, err
}

// taker is the controller of a shard with a binding to the export of shard m.
type taker struct {
	*controller
	exporter *exporter
	probing  *probing
	binding  binding
	bindings *controllertest.Source[binding]
	shards   *controllertest.Source[*corev1alpha1.Shard]
}

func (k *taker) key() key {
	of, _ := offerOf(k.binding)
	return of
}

func taking(t *testing.T) *taker {
	t.Helper()
	out := &taker{exporter: &exporter{offer: offering("1", "parcels")}, probing: &probing{}, binding: &apisv1alpha2.APIBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "b", Annotations: map[string]string{
			logicalcluster.AnnotationKey: "taker", clusters.ExportClusterAnnotation: "maker", clusters.ExportShardAnnotation: "m",
		}},
		Spec: apisv1alpha2.APIBindingSpec{Reference: apisv1alpha2.BindingReference{Export: &apisv1alpha2.ExportBindingReference{Path: "root:maker", Name: "parcels"}}},
	}}
	in := controllertest.WithCustom(t, controllers.Informers{}, nil, nil)
	out.bindings = controllertest.NewSource(out.binding)
	in.APIBindings = controllertest.Informer(t, out.bindings, controllers.BindingIndexers())
	out.shards = controllertest.NewSource[*corev1alpha1.Shard]()
	in.Shards = controllertest.Informer(t, out.shards, nil)
	controllertest.Run(t, in.APIBindings)
	clients, err := controllers.NewClients(&rest.Config{Host: "http://127.0.0.1", QPS: -1}, &http.Client{Transport: clusters.Transport(out.probing)})
	if err != nil {
		t.Fatal(err)
	}
	others := controllers.NewShards("root", nil)
	others.Offers = out.exporter
	c, err := construct(t.Context(), controllers.Deps{Shard: "n", Informers: in, Clients: clients, Shards: others})
	if err != nil {
		t.Fatal(err)
	}
	out.controller = c.(*controller)
	return out
}

// says returns what the binding's condition says, whether the controller waits, and what is bound.
func (k *taker) says() (message string, waits bool, names []string) {
	d := k.decide(k.binding)
	if c := conditions.Get(d.out, apisv1alpha2.BindingUpToDate); c != nil {
		message = c.Message
	}
	for _, r := range d.out.Status.BoundResources {
		names = append(names, r.Resource)
	}
	return message, d.lacking, names
}

func TestABindingWaitsForTheShardOfItsExport(t *testing.T) {
	k := taking(t)
	if message, _, bound := k.says(); !strings.Contains(message, "shard m is not heard") || len(bound) > 0 {
		t.Errorf("its shard is not heard: %q, bound %v", message, bound)
	}
	if err := k.pull(t.Context(), k.key()); err != nil || k.exporter.reads > 0 {
		t.Errorf("%d reads of a shard that is not heard (%v)", k.exporter.reads, err)
	}
	k.others.Contact.Set("m", true)
	if message, waits, _ := k.says(); !waits || message != "" {
		t.Errorf("its shard is heard, and not read yet: %q, waits %t", message, waits)
	}
	k.exporter.fault = errors.New("it hangs")
	if err := k.pull(t.Context(), k.key()); err == nil || !strings.Contains(err.Error(), "it hangs") {
		t.Errorf("its shard hangs: %v", err)
	}
	k.exporter.fault = nil
	if err := k.pull(t.Context(), k.key()); err != nil {
		t.Fatal(err)
	}
	if message, waits, bound := k.says(); waits || message != "" || len(bound) != 1 {
		t.Errorf("its shard has answered: %q, waits %t, bound %v", message, waits, bound)
	}
}

// Nothing that is bound depends on whether its shard is heard, or was read in this term.
func TestWhatIsBoundDoesNotWait(t *testing.T) {
	k := taking(t)
	k.binding = k.binding.DeepCopy()
	conditions.MarkTrue(k.binding, apisv1alpha2.InitialBindingCompleted)
	for _, heard := range []bool{false, true} {
		k.others.Contact.Set("m", heard)
		d := k.decide(k.binding)
		if !d.lacking {
			t.Errorf("heard %t: its status becomes %+v", heard, d.out.Status)
		}
	}
}

func TestAnExportIsReadAsLongAsABindingNamesIt(t *testing.T) {
	k := taking(t)
	k.others.Contact.Set("m", true)
	pull := func() {
		t.Helper()
		if known, ok := k.offers.get(k.key()); ok { // as if time had passed
			known.read = known.read.Add(-offerPeriod)
			k.offers.set(k.key(), known)
		}
		if err := k.pull(t.Context(), k.key()); err != nil {
			t.Fatal(err)
		}
	}
	pull()
	if err := k.pull(t.Context(), k.key()); err != nil || k.exporter.reads != 1 {
		t.Errorf("%d reads in no time (%v)", k.exporter.reads, err)
	}
	first := k.exporter.offer
	pull()
	if k.exporter.reads != 2 || k.exporter.was != first || len(k.probing.probes) != 1 {
		t.Errorf("%d reads, probed %v", k.exporter.reads, k.probing.probes)
	}

	next := offering("2", "parcels", "unfits", "stamps")
	next.Schemas["v1.parcels.example.com"] = first.Schemas["v1.parcels.example.com"]
	delete(next.Schemas, "v1.stamps.example.com")
	k.exporter.offer = next
	pull()
	message, _, bound := k.says()
	if len(bound) != 1 || !strings.Contains(message, "cannot use APIResourceSchema v1.unfits.example.com of shard m") || !strings.Contains(message, "a field of tomorrow") {
		t.Errorf("with a schema of a later version, and one that is not there: %q, bound %v", message, bound)
	}
	pull()
	if again, _, _ := k.says(); again != message || len(k.probing.probes) != 2 {
		t.Errorf("the next time: %q, probed %v", again, k.probing.probes)
	}

	k.exporter.offer = nil
	pull()
	if message, _, _ := k.says(); !strings.Contains(message, "there is no APIExport parcels") {
		t.Errorf("without the export: %q", message)
	}
	stranger := key{what: anOffer, of: k.key().of, shard: "another"}
	if err := k.pull(t.Context(), stranger); err != nil {
		t.Fatal(err)
	}
	if _, known := k.offers.get(stranger); known || k.exporter.reads != 5 {
		t.Error("an export is read that no binding names")
	}
}

// It has found nothing that is known of the export, and waits to be told.
func TestABindingThatComesWhileItsExportIsReadIsNotForgotten(t *testing.T) {
	synctest.Test(t, aBindingComes)
}

func aBindingComes(t *testing.T) {
	k := taking(t)
	k.others.Contact.Set("m", true)
	late := k.binding.DeepCopy()
	late.Name = "late"
	k.exporter.meanwhile = func() {
		k.bindings.Set(late)
		synctest.Wait()
		if d := k.decide(late); !d.lacking {
			t.Errorf("it does not wait: %+v", d.out.Status)
		}
	}
	waiting, err := k.read(t.Context(), k.key(), offer{}, false)
	if err != nil || len(waiting) != 2 {
		t.Errorf("%v are told, want both (%v)", waiting, err)
	}
}

func TestChangesOfAnExportAreHeardOf(t *testing.T) {
	k := taking(t)
	k.others.Contact.Set("m", true)
	if err := k.pull(t.Context(), k.key()); err != nil {
		t.Fatal(err)
	}
	parcels := clusters.Key{Cluster: "maker", Name: "parcels"}
	for _, tc := range []struct {
		name    string
		changes map[clusters.Key]string
		missed  bool
		by      string
		again   bool
	}{
		{name: "a process tells for the first time", again: true},
		{name: "nothing has changed"},
		{name: "another export has", changes: map[clusters.Key]string{{Cluster: "maker", Name: "letters"}: "5"}},
		{name: "it has changed", changes: map[clusters.Key]string{parcels: "6"}, again: true},
		{name: "it has not changed since", changes: map[clusters.Key]string{parcels: "6"}},
		{name: "it has changed again", changes: map[clusters.Key]string{parcels: "6 7"}, again: true},
		{name: "more has changed than is told, and it was read just now", missed: true},
		{name: "another process tells", by: "2", again: true},
		{name: "the same process tells", by: "2"},
		{name: "the first one tells again"},
	} {
		again, some := k.offers.hear("m", controllers.Changes{Exports: tc.changes, All: !tc.missed, By: tc.by})
		if !some || (len(again) == 1) != tc.again || len(again) > 1 {
			t.Errorf("%s: %v are read again (%t)", tc.name, again, some)
		}
		reads := k.exporter.reads
		if tc.again {
			if err := k.pull(t.Context(), again[0]); err != nil || k.exporter.reads != reads+1 {
				t.Errorf("%s: it is not read at once (%v)", tc.name, err)
			}
		}
	}
	for n := range 100 {
		k.offers.hear("m", controllers.Changes{All: true, By: strconv.Itoa(n)})
	}
	if n := len(k.offers.tellers["m"]); n > 16 {
		t.Errorf("%d processes are remembered", n)
	}
	if err := k.pull(t.Context(), k.key()); err != nil {
		t.Fatal(err)
	}
	known, _ := k.offers.get(k.key())
	known.read = known.read.Add(-overtaken)
	k.offers.set(k.key(), known)
	if again, _ := k.offers.hear("m", controllers.Changes{All: true, By: "99"}); len(again) != 0 {
		t.Errorf("all changes were told: %v are read again", again)
	}
	reads := k.exporter.reads
	if again, _ := k.offers.hear("m", controllers.Changes{By: "99"}); len(again) != 1 {
		t.Errorf("more has changed than is told: %v are read again", again)
	} else if err := k.pull(t.Context(), again[0]); err != nil || k.exporter.reads != reads+1 {
		t.Errorf("more has changed than is told, and it is not read (%v)", err)
	}
	if k.offers.doubt("m"); len(first(k.offers.hear("m", controllers.Changes{All: true, By: "99"}))) != 1 {
		t.Error("the shard was not heard meanwhile, and nothing is read again")
	}
	if again, some := k.offers.hear("another", controllers.Changes{}); len(again) != 0 || some {
		t.Errorf("of another shard %v are read (%t)", again, some)
	}
}

func first(again []key, _ bool) []key { return again }

// What hangs of another shard leaves workers to this one.
func TestWhatAnotherShardIsAskedIsChargedToIt(t *testing.T) {
	k := taking(t)
	if got := k.key().chargedTo(); got != "shard m" {
		t.Errorf("it is charged to %q", got)
	}
	if got := (key{what: aBinding, of: clusters.KeyOf(k.binding)}).chargedTo(); got != "taker" {
		t.Errorf("a binding is charged to %q", got)
	}
}
