package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/test/etcdtest"
)

// sample is what is written of a resource or subresource.
type sample struct {
	// body is an object without its metadata, for resources.
	body string
	// change is a merge patch; empty: a label.
	change string
	// name is that which objects must have, if they cannot have any.
	name       string
	putCreates bool
}

// questions are what is created and not stored, by API version and name: an object of each.
var questions = map[string]string{
	"v1 serviceaccounts/token":                          "{apiVersion: authentication.k8s.io/v1, kind: TokenRequest}",
	"authentication.k8s.io/v1 tokenreviews":             "{apiVersion: authentication.k8s.io/v1, kind: TokenReview, spec: {token: t}}",
	"authorization.k8s.io/v1 subjectaccessreviews":      "{apiVersion: authorization.k8s.io/v1, kind: SubjectAccessReview, spec: {user: ann, nonResourceAttributes: {verb: get, path: /}}}",
	"authorization.k8s.io/v1 localsubjectaccessreviews": "{apiVersion: authorization.k8s.io/v1, kind: LocalSubjectAccessReview, metadata: {namespace: default}, spec: {user: ann, resourceAttributes: {verb: get, resource: secrets, namespace: default}}}",
	"authorization.k8s.io/v1 selfsubjectaccessreviews":  "{apiVersion: authorization.k8s.io/v1, kind: SelfSubjectAccessReview, spec: {nonResourceAttributes: {verb: get, path: /}}}",
	"authorization.k8s.io/v1 selfsubjectrulesreviews":   "{apiVersion: authorization.k8s.io/v1, kind: SelfSubjectRulesReview, spec: {namespace: default}}",
	"authentication.k8s.io/v1 selfsubjectreviews":       "{apiVersion: authentication.k8s.io/v1, kind: SelfSubjectReview}",
}

// samples are by API version and name. A resource that is not among them is written as an empty object; a subresource
// must be.
var samples = map[string]sample{
	"v1 namespaces/status":   {change: "{status: {conditions: [{type: Sampled, status: 'True'}]}}"},
	"v1 namespaces/finalize": {change: "{spec: {finalizers: [kubernetes, example.com/more]}}"},
	"v1 configmaps":          {body: "{data: {a: x}}"},
	"v1 secrets":             {body: "{data: {a: AAAA}}"},
	"v1 serviceaccounts":     {body: "{automountServiceAccountToken: false}"},
	"v1 events":              {body: "{involvedObject: {namespace: default, name: x}}", putCreates: true},
	"events.k8s.io/v1 events": {
		body: "{eventTime: '2026-01-01T00:00:00.000000Z', reportingController: a, reportingInstance: i, action: a, reason: r, " +
			"type: Normal, regarding: {namespace: default}}",
		putCreates: true,
	},
	"coordination.k8s.io/v1 leases": {body: "{spec: {holderIdentity: h, leaseTransitions: 1}}", putCreates: true},
	"coordination.k8s.io/v1beta1 leasecandidates": {
		body: "{spec: {leaseName: l, binaryVersion: 1.2.0, strategy: example.com/Newest}}", putCreates: true,
	},
	"rbac.authorization.k8s.io/v1 roles":               {body: "{rules: [{verbs: [get], apiGroups: [''], resources: [configmaps]}]}", putCreates: true},
	"rbac.authorization.k8s.io/v1 clusterroles":        {body: "{rules: [{verbs: [get], nonResourceURLs: [/metrics]}]}", putCreates: true},
	"rbac.authorization.k8s.io/v1 rolebindings":        {body: "{roleRef: {kind: Role, name: r}}", putCreates: true},
	"rbac.authorization.k8s.io/v1 clusterrolebindings": {body: "{roleRef: {kind: ClusterRole, name: r}}", putCreates: true},
	"tenancy.kcp.io/v1alpha1 workspaces":               {body: "{spec: {type: {name: universal, path: root}}}"},
	"tenancy.kcp.io/v1alpha1 workspaces/status":        {change: "{status: {phase: Initializing}}"},
	"core.kcp.io/v1alpha1 logicalclusters":             {name: "cluster", body: "{spec: {initializers: ['system:x']}}"},
	"core.kcp.io/v1alpha1 shards":                      {name: "a-shard", body: "{spec: {baseURL: 'https://a:1'}}"},
	"core.kcp.io/v1alpha1 shards/status":               {change: "{status: {capacity: {clusters: '1'}}}"},
	"core.kcp.io/v1alpha1 logicalclusters/status":      {change: "{status: {phase: Initializing}}"},
	"apiextensions.k8s.io/v1 customresourcedefinitions": {
		name: "samples.example.com", body: "{spec: {group: example.com, scope: Cluster, names: {plural: samples, kind: Sample}, " +
			"versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}",
	},
	"apis.kcp.io/v1alpha1 apiresourceschemas": {
		name: "v1.samples.example.com", body: "{spec: {group: example.com, scope: Cluster, names: {plural: samples, kind: Sample}, " +
			"versions: [{name: v1, served: true, storage: true, schema: {type: object}}]}}",
	},
	"apis.kcp.io/v1alpha2 apiexports":                          {},
	"apis.kcp.io/v1alpha2 apibindings":                         {body: "{spec: {reference: {export: {name: e}}}}"},
	"apis.kcp.io/v1alpha2 apibindings/status":                  {change: "{status: {phase: Binding}}"},
	"apiextensions.k8s.io/v1 customresourcedefinitions/status": {change: "{status: {conditions: [{type: Sampled, status: 'True'}]}}"},
}

func (s sample) nameOr(other string) string {
	if s.name != "" {
		return s.name
	}
	return other
}

// writable is a resource or subresource that the server says it serves.
type writable struct {
	gvr          schema.GroupVersionResource
	subresources []string
	kind         string
	namespaced   bool
	verbs        []string
	// whole is the sample of the resource, part that of the subresource, or the same.
	whole, part sample
	// define makes the definition that custom objects need, in the target's cluster.
	define func(t *testing.T, o target)
}

func (r writable) String() string {
	return strings.Join(append([]string{r.gvr.GroupVersion().String(), r.gvr.Resource}, r.subresources...), "/")
}

func (r writable) changed() map[string]any {
	if r.part.change == "" {
		return fromYAML("{metadata: {labels: {changed: indeed}}}")
	}
	return fromYAML(r.part.change)
}

// fromYAML is for what stands in this package.
func fromYAML(text string) map[string]any {
	out := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		panic(err)
	}
	return out
}

// fencedShard is a shard with a Lease that somebody holds, and clients of the leader, who may write everything: one
// without a token, one with the token of the term that the Lease shows, and some, by whose they are, with those of
// other terms. outside is such a one of the administrator's.
type fencedShard struct {
	discovery     discovery.DiscoveryInterface
	etcd          *clientv3.Client
	free, current dynamic.Interface
	over          map[string]dynamic.Interface
	outside       dynamic.Interface
	targets       int

	known    map[string]int64 // the keys at revision
	revision int64
}

func startFencedShard(t *testing.T) *fencedShard {
	t.Helper()
	cfg := config(t, t.TempDir())
	cfg.EmbeddedEtcd, cfg.Etcd = nil, etcdtest.Start(t)
	r := startReplica(t, cfg)
	t.Cleanup(func() {
		if err := r.stop(t); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	r.untilReady(t)
	etcd := etcdtest.Client(t, cfg.Etcd)
	lease, err := r.adminIn(t, clusters.SystemAdmin).CoordinationV1().Leases(aNamespace).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "some-job"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("holder"), LeaseTransitions: ptr.To(int32(7))},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token := fence.OfLease(lease)
	s := &fencedShard{
		discovery: r.adminIn(t, clusters.SystemAdmin).Discovery(), etcd: etcd,
		free: r.dynamic(t, fence.Token{}), current: r.dynamic(t, token), over: map[string]dynamic.Interface{},
	}
	for whose, change := range map[string]func(*fence.Token){
		"an earlier epoch":   func(t *fence.Token) { t.Epoch-- },
		"a later epoch":      func(t *fence.Token) { t.Epoch++ },
		"another holder":     func(t *fence.Token) { t.Holder = "another" },
		"another Lease":      func(t *fence.Token) { t.UID = "another" },
		"an unknown Lease":   func(t *fence.Token) { t.Name = "another" },
		"an unknown cluster": func(t *fence.Token) { t.Cluster = "system:another" },
	} {
		other := token
		change(&other)
		s.over[whose] = r.dynamic(t, other)
	}
	earlier := token
	earlier.Epoch--
	s.outside = dynamicOf(t, r.adminConfig(t, ""), earlier)
	return s
}

// discover returns all that is served, in all versions.
func (s *fencedShard) discover(t *testing.T) []writable {
	t.Helper()
	_, lists, err := s.discovery.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var out []writable
	known := map[string]bool{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, api := range list.APIResources {
			resource, subresource, isPart := strings.Cut(api.Name, "/")
			r := writable{gvr: gv.WithResource(resource), kind: api.Kind, namespaced: api.Namespaced, verbs: api.Verbs}
			if isPart {
				r.subresources = []string{subresource}
			}
			key := list.GroupVersion + " " + api.Name
			if _, ok := questions[key]; ok {
				continue // TestQuestionsWriteNothing
			}
			known[key] = true
			r.whole = samples[list.GroupVersion+" "+resource]
			part, ok := samples[key]
			if !ok && isPart {
				t.Errorf("%s is served, and has no sample", key)
				continue
			}
			r.part = part
			out = append(out, r)
		}
	}
	for key := range samples {
		if !known[key] {
			t.Errorf("%s has a sample, and is not served", key)
		}
	}
	return out
}

// newTarget returns an object that does not exist yet. System clusters need not be made.
func (s *fencedShard) newTarget(t *testing.T, r writable) target {
	s.targets++
	cluster := logicalcluster.Name(fmt.Sprintf("system:target-%d", s.targets))
	o := target{writable: r, ctx: clusters.With(t.Context(), cluster), client: s.free}
	if r.define != nil {
		r.define(t, o)
	}
	return o
}

// keys are the shard's (see keysOf). At a revision of etcd that was read already they are as they were then: to read
// some thousand keys after each write that is refused would cost more than all else here.
func (s *fencedShard) keys(t *testing.T) map[string]int64 {
	t.Helper()
	resp, err := s.etcd.Get(t.Context(), "/registry", clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	if resp.Header.Revision != s.revision {
		s.known, s.revision = keysOf(t, s.etcd)
	}
	return s.known
}

// storedKeys are those of keysOf.
func storedKeys(t *testing.T, etcd *clientv3.Client) map[string]int64 {
	t.Helper()
	out, _ := keysOf(t, etcd)
	return out
}

// keysOf are all of a shard's, with the revisions at which they were written, but for the events that the replicas
// themselves record of their terms; and the revision of etcd at which they were read.
func keysOf(t *testing.T, etcd *clientv3.Client) (out map[string]int64, revision int64) {
	t.Helper()
	resp, err := etcd.Get(t.Context(), "/registry", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	out = map[string]int64{}
	for _, kv := range resp.Kvs {
		if key := string(kv.Key); !strings.HasPrefix(key, "/registry/core/events/"+clusters.SystemAdmin.String()+"/") {
			out[key] = kv.ModRevision
		}
	}
	return out, resp.Header.Revision
}

// dynamic returns a client of the leader's for the logical cluster in each context, with a fencing token unless it is
// zero.
func (r *replica) dynamic(t *testing.T, token fence.Token) dynamic.Interface {
	t.Helper()
	return dynamicOf(t, r.configOf(t, r.server.identity.InProcess.Leader, ""), token)
}

func dynamicOf(t *testing.T, config *rest.Config, token fence.Token) dynamic.Interface {
	t.Helper()
	config.Wrap(clusters.Transport)
	config.Wrap(fence.Transport(fence.Of(token)))
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// untilReady waits until the replica is ready.
func (r *replica) untilReady(t *testing.T) {
	t.Helper()
	until(t, "the replica is ready", func() bool { return r.get(t, "/readyz") == http.StatusOK })
}
