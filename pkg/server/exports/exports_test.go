package exports

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
	"github.com/regent-project/regent/pkg/server/apis/admission"
	"github.com/regent-project/regent/pkg/server/status"
)

var parcels = clusters.Key{Cluster: "maker", Name: "parcels"}

// maker is shard m, which has the export parcels in cluster maker, with some schemas by name. Friends may bind it.
type maker struct {
	silent  bool
	schemas map[string]types.UID
	// lie changes an answer.
	lie   func(*Answer)
	asked []Question
	// informers have what has changed.
	informers controllers.Informers
}

func (m *maker) Peers() map[string]bool { return map[string]bool{"m": !m.silent} }

func (m *maker) Ask(ctx context.Context, shard, path string, _ time.Duration, _ int64) ([]byte, error) {
	at, query, _ := strings.Cut(path, "?")
	values, err := url.ParseQuery(query)
	if shard != "m" || at != status.ExportPath || err != nil {
		return nil, errors.New("a question that nobody asks")
	}
	q, err := ReadQuestion(values)
	if err != nil {
		return nil, err
	}
	m.asked = append(m.asked, q)
	answers := Answers{Reader: m, Informers: m.informers, Process: "m-0", Authorizer: authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		cluster, _ := clusters.From(ctx)
		if cluster == parcels.Cluster && a.GetVerb() == "bind" && a.GetResource() == "apiexports" && a.GetName() == parcels.Name && a.GetUser().GetGroups()[0] == "friends" {
			return authorizer.DecisionAllow, "", errors.New("some roles are missing")
		}
		return authorizer.DecisionNoOpinion, "", nil
	})}
	out, err := answers.Answer(ctx, q)
	if err != nil {
		return nil, err
	}
	if m.lie != nil {
		m.lie(&out)
	}
	return json.Marshal(out)
}

func (m *maker) Export(ctx context.Context, name string) (*apisv1alpha2.APIExport, error) {
	if cluster, _ := clusters.From(ctx); (clusters.Key{Cluster: cluster, Name: name}) != parcels {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	out := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "e1", ResourceVersion: "7", ManagedFields: []metav1.ManagedFieldsEntry{{}}}}
	for _, named := range []string{"v1.parcels.example.com", "v1.stamps.example.com"} {
		out.Spec.Resources = append(out.Spec.Resources, apisv1alpha2.ResourceSchema{Schema: named})
	}
	return out, nil
}

func (m *maker) Schema(_ context.Context, name string) (*apisv1alpha1.APIResourceSchema, error) {
	uid, there := m.schemas[name]
	if !there {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	return &apisv1alpha1.APIResourceSchema{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}, Spec: apisv1alpha1.APIResourceSchemaSpec{Group: "example.com"}}, nil
}

// making has caches that are not filled: what is there is read.
func making() *maker {
	return &maker{
		schemas:   map[string]types.UID{"v1.parcels.example.com": "s1", "v1.secrets.example.com": "s2"},
		informers: controllers.Informers{APIResourceSchemas: clusters.NewInformer[*apisv1alpha1.APIResourceSchema](controllertest.NewSource[*apisv1alpha1.APIResourceSchema](), nil)},
	}
}

func TestAQuestionArrivesAsItWasPut(t *testing.T) {
	who := &user.DefaultInfo{Name: "ann", UID: "7", Groups: []string{"a,b", "c&d=e"}, Extra: map[string][]string{"authentication.kcp.io/cluster-name": {"x"}}}
	for _, q := range []Question{
		{Changed: true}, {Cluster: "maker", Name: "parcels"}, {Cluster: "root", Name: "a.b-c", Schema: "v1.parcels.example.com"}, {Cluster: "maker", Name: "parcels", User: infoOf(who)},
	} {
		query, err := q.Query()
		if err != nil {
			t.Fatal(err)
		}
		got, err := ReadQuestion(query)
		if diff := cmp.Diff(q, got); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
	}
	if diff := cmp.Diff(who, userOf(infoOf(who))); diff != "" {
		t.Error(diff)
	}
}

func FuzzReadQuestion(f *testing.F) {
	f.Add("cluster=maker&name=parcels")
	f.Add("cluster=maker&name=parcels&schema=v1.parcels.example.com")
	f.Add(`cluster=maker&name=parcels&user={"username":"ann","groups":["a"],"extra":{"k":["v"]}}`)
	f.Add("cluster=../maker&name=a/b&schema=..")
	f.Fuzz(func(t *testing.T, text string) {
		query, _ := url.ParseQuery(text)
		q, err := ReadQuestion(query)
		if err != nil {
			return
		}
		if strings.ContainsAny(q.Name+q.Schema+q.Cluster.String(), "/%?\x00") || strings.Contains(q.Name+q.Schema, "..") || q.User != nil && (q.User.Username == "" || q.Schema != "") {
			t.Errorf("%q is accepted: %+v", text, q)
		}
		again, err := q.Query()
		if err != nil {
			t.Fatal(err)
		}
		if read, err := ReadQuestion(again); err != nil || read.Cluster != q.Cluster || read.Name != q.Name || read.Schema != q.Schema || (read.User == nil) != (q.User == nil) {
			t.Errorf("%+v comes back as %+v (%v)", q, read, err)
		}
	})
}

func TestTheShardOfAnExportDecidesWhoMayBindIt(t *testing.T) {
	m := making()
	o := NewOthers(m)
	friend, stranger := &user.DefaultInfo{Name: "ann", Groups: []string{"friends"}}, &user.DefaultInfo{Name: "joe", Groups: []string{"others"}}
	for name, tc := range map[string]struct {
		cluster logicalcluster.Name
		asks    authorizer.AttributesRecord
		want    authorizer.Decision
	}{
		"a friend":                     {"maker", admission.AttributesOfBinding(friend, "parcels"), authorizer.DecisionAllow},
		"a stranger":                   {"maker", admission.AttributesOfBinding(stranger, "parcels"), authorizer.DecisionNoOpinion},
		"a friend, another export":     {"maker", admission.AttributesOfBinding(friend, "letters"), authorizer.DecisionNoOpinion},
		"a friend, what has no name":   {"maker", admission.AttributesOfBinding(friend, "parcels/status"), authorizer.DecisionNoOpinion},
		"a friend, in another cluster": {"taker", admission.AttributesOfBinding(friend, "parcels"), authorizer.DecisionNoOpinion},
		"a friend, to read it":         {"maker", authorizer.AttributesRecord{User: friend, Verb: "get", Resource: "apiexports", Name: "parcels"}, authorizer.DecisionNoOpinion},
	} {
		if got, _, err := o.Authorizer("m").Authorize(clusters.With(t.Context(), tc.cluster), tc.asks); got != tc.want || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	m.silent = true
	if got, _, err := o.Authorizer("m").Authorize(clusters.With(t.Context(), "maker"), admission.AttributesOfBinding(friend, "parcels")); got == authorizer.DecisionAllow || err == nil || !strings.Contains(err.Error(), "shard m is not heard") {
		t.Errorf("of a shard that is not heard: %v, %v", got, err)
	}
}

func TestASchemaIsReadOnce(t *testing.T) {
	m := making()
	o := NewOthers(m)
	first, err := o.Offer(t.Context(), "m", parcels, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s := first.Schemas["v1.parcels.example.com"]; len(first.Schemas) != 1 || s.Spec.Group != "example.com" || s.UID != clusters.ForeignUID("m", "s1") || clusters.KeyOf(s).Cluster != "maker" {
		t.Errorf("schemas: %v", first.Schemas)
	}
	if first.Export.ManagedFields != nil || clusters.KeyOf(first.Export) != parcels {
		t.Errorf("export: %+v", first.Export)
	}
	m.asked = nil
	second, err := o.Offer(t.Context(), "m", parcels, first)
	if err != nil || len(m.asked) != 1 || second.Schemas["v1.parcels.example.com"] != first.Schemas["v1.parcels.example.com"] {
		t.Errorf("asked %+v for what is known (%v)", m.asked, err)
	}
	m.schemas["v1.parcels.example.com"] = "s9"
	third, err := o.Offer(t.Context(), "m", parcels, second)
	if err != nil || third.Schemas["v1.parcels.example.com"].UID != clusters.ForeignUID("m", "s9") {
		t.Errorf("a schema that was deleted, and made again: %v (%v)", third, err)
	}
	if _, err := o.Offer(t.Context(), "m", clusters.Key{Cluster: "maker", Name: "letters"}, nil); !apierrors.IsNotFound(err) {
		t.Errorf("an export that is not there: %v", err)
	}
}

func TestChangesAreToldByExport(t *testing.T) {
	synctest.Test(t, changesAreTold)
}

func changesAreTold(t *testing.T) {
	newer := func(obj clusters.Object, cluster, name string) {
		obj.SetName(name)
		obj.SetAnnotations(map[string]string{logicalcluster.AnnotationKey: cluster})
	}
	schema := func(cluster, name string) *apisv1alpha1.APIResourceSchema {
		out := &apisv1alpha1.APIResourceSchema{}
		newer(out, cluster, name)
		return out
	}
	export := func(cluster, name string, of ...string) *apisv1alpha2.APIExport {
		out := &apisv1alpha2.APIExport{}
		newer(out, cluster, name)
		for _, s := range of {
			out.Spec.Resources = append(out.Spec.Resources, apisv1alpha2.ResourceSchema{Schema: s})
		}
		return out
	}
	schemas, exports := controllertest.NewSource(schema("maker", "s1"), schema("other", "s1")), controllertest.NewSource(export("maker", "one", "s1", "s2"), export("maker", "two", "s2"), export("other", "one", "s1"))
	in := controllers.Informers{APIResourceSchemas: controllertest.Informer(t, schemas, nil), APIExports: controllertest.Informer(t, exports, nil)}
	controllertest.Run(t, in.APIResourceSchemas, in.APIExports)
	m := making()
	m.informers = in
	o := NewOthers(m)
	told := func() map[clusters.Key]string {
		t.Helper()
		synctest.Wait()
		got, err := o.Changes(t.Context(), "m")
		if err != nil || !got.All || got.By != "m-0" {
			t.Fatalf("%+v, %v", got, err)
		}
		return got.Exports
	}
	one, two, others := clusters.Key{Cluster: "maker", Name: "one"}, clusters.Key{Cluster: "maker", Name: "two"}, clusters.Key{Cluster: "other", Name: "one"}
	if got := told(); len(got) != 0 {
		t.Errorf("what was there at first counts as a change: %v", got)
	}
	schemas.Delete(clusters.Key{Cluster: "maker", Name: "s1"})
	gone := told()
	schemas.Set(schema("maker", "s1"))
	again := told()
	if gone[one] == "" || again[one] == gone[one] {
		t.Errorf("a schema goes, and is there again: %q, %q", gone[one], again[one])
	}
	if again[two] != "" || again[others] != "" {
		t.Errorf("exports that do not name it have changed: %v", again)
	}
	exports.Set(export("maker", "two"))
	changed := told()
	exports.Delete(two)
	if left := told(); changed[two] == "" || left[two] == changed[two] {
		t.Errorf("an export changes, and goes: %q, %q", changed[two], left[two])
	}
}

// A tenant may have many exports, and change their schemas all the time.
func TestChangesOfASchemaCostABoundedLook(t *testing.T) {
	synctest.Test(t, changesCostABoundedLook)
}

func changesCostABoundedLook(t *testing.T) {
	wide := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{logicalcluster.AnnotationKey: "maker"}}}
	wide.Spec.Resources = make([]apisv1alpha2.ResourceSchema, maxLooked/2)
	var many []*apisv1alpha2.APIExport
	for _, name := range []string{"a", "b", "c", "d"} {
		one := wide.DeepCopy()
		one.Name = name
		many = append(many, one)
	}
	s := &apisv1alpha1.APIResourceSchema{ObjectMeta: metav1.ObjectMeta{Name: "s", Annotations: wide.Annotations}}
	schemas := controllertest.NewSource(s)
	in := controllers.Informers{APIResourceSchemas: controllertest.Informer(t, schemas, nil), APIExports: controllertest.Informer(t, controllertest.NewSource(many...), nil)}
	controllertest.Run(t, in.APIResourceSchemas, in.APIExports)
	if (Answers{Informers: in}).changes().Missed {
		t.Error("nothing has changed, and something is missed")
	}
	schemas.Delete(clusters.KeyOf(s))
	synctest.Wait()
	if !(Answers{Informers: in}).changes().Missed {
		t.Error("more exports are looked at than there is time for")
	}
}

// A member reads what is exported, and nothing else of a tenant.
func TestOnlyWhatAnExportNamesIsShown(t *testing.T) {
	m := making()
	for schema, shown := range map[string]bool{"v1.parcels.example.com": true, "v1.secrets.example.com": false, "v1.stamps.example.com": false} {
		got, err := Answers{Reader: m}.Answer(t.Context(), Question{Cluster: "maker", Name: "parcels", Schema: schema})
		if err != nil || (got.Schema != nil) != shown {
			t.Errorf("%s: %+v, %v", schema, got, err)
		}
	}
}

func TestAShardThatLiesLeadsNobodyElseAstray(t *testing.T) {
	for name, tc := range map[string]struct {
		lie  func(*Answer)
		want string // a part of the error
	}{
		"too many resources": {func(a *Answer) {
			if a.Export != nil {
				a.Export.Spec.Resources = make([]apisv1alpha2.ResourceSchema, maxResources+1)
			}
		}, "250 are followed at most"},
		"another schema": {func(a *Answer) {
			if a.Schema != nil {
				a.Schema.UID = "another"
			}
		}, "changed meanwhile"},
		"no schema": {func(a *Answer) { a.Schema = nil }, "changed meanwhile"},
	} {
		m := making()
		m.lie = tc.lie
		if _, err := NewOthers(m).Offer(t.Context(), "m", parcels, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	m := making()
	m.lie = func(a *Answer) {
		elsewhere := metav1.ObjectMeta{Name: "mine", UID: "s1", Annotations: map[string]string{logicalcluster.AnnotationKey: "victim"}}
		if a.Export != nil {
			a.Export.ObjectMeta = elsewhere
		}
		if a.Schema != nil {
			a.Schema.ObjectMeta = elsewhere
		}
	}
	got, err := NewOthers(m).Offer(t.Context(), "m", parcels, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := got.Schemas["v1.parcels.example.com"]
	if clusters.KeyOf(got.Export) != parcels || clusters.KeyOf(s) != (clusters.Key{Cluster: "maker", Name: "v1.parcels.example.com"}) {
		t.Errorf("what it says of where it is counts: %v, %v", clusters.KeyOf(got.Export), clusters.KeyOf(s))
	}
	if s.UID == "s1" || clusters.ForeignUID("m", "s1") == clusters.ForeignUID("n", "s1") {
		t.Error("a schema of one shard passes for that of another one")
	}
}

var (
	_ Peers                   = (*maker)(nil)
	_ Reader                  = (*maker)(nil)
	_ controllers.OfferReader = (*Others)(nil)
)
