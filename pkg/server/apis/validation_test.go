package apis

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/regent-project/regent/test/etcdtest"
)

// validationCase is an object, and for updates what it becomes. want is a part of the refusal; empty: it is admitted.
type validationCase struct {
	name, create, update, want string
}

var validationCases = map[string][]validationCase{
	"v1 namespaces": {
		{name: "sound", create: "{metadata: {name: n-1}}"},
		{name: "name with a dot", create: "{metadata: {name: a.b}}", want: "metadata.name"},
		{name: "name too long", create: "{metadata: {name: " + strings.Repeat("n", 64) + "}}", want: "metadata.name"},
		{name: "finalizer without a name", create: "{metadata: {name: x}, spec: {finalizers: ['a b']}}", want: "spec.finalizers[0]"},
		{name: "bad label", create: "{metadata: {name: x, labels: {'a b': c}}}", want: "metadata.labels"},
		{name: "own name label", create: "{metadata: {name: own}}", update: "{metadata: {labels: {kubernetes.io/metadata.name: other}}}"},
	},
	"v1 configmaps": {
		{name: "sound", create: "{metadata: {name: c}, data: {a.b-c_d: x}, binaryData: {e: AAAA}}"},
		{name: "upper-case name", create: "{metadata: {name: C}}", want: "metadata.name"},
		{name: "key that is no file name", create: "{metadata: {name: x}, data: {a/b: x}}", want: "data[a/b]"},
		{name: "key ..", create: "{metadata: {name: x}, data: {'..': x}}", want: "data[..]"},
		{name: "key twice", create: "{metadata: {name: x}, data: {a: x}, binaryData: {a: AAAA}}", want: "duplicate"},
		{name: "too large", create: "{metadata: {name: x}, data: {a: " + strings.Repeat("x", 1<<20) + ", b: x}}", want: "Too long"},
		{name: "as large as may be", create: "{metadata: {name: large}, data: {a: " + strings.Repeat("x", 1<<20) + "}}"},
		{name: "immutable data", create: "{metadata: {name: i1}, immutable: true, data: {a: x}}", update: "{immutable: true, data: {a: z}}", want: "data: Forbidden"},
		{name: "immutable for ever", create: "{metadata: {name: i2}, immutable: true}", update: "{immutable: false}", want: "immutable: Forbidden"},
		{name: "immutable labels", create: "{metadata: {name: i3}, immutable: true, data: {a: x}}", update: "{metadata: {labels: {a: b}}, immutable: true, data: {a: x}}"},
	},
	"v1 secrets": {
		{name: "sound", create: "{metadata: {name: s}, data: {a: AAAA}, stringData: {b: x}}"},
		{name: "bad key", create: "{metadata: {name: x}, stringData: {a/b: x}}", want: "data[a/b]"},
		{name: "too large", create: "{metadata: {name: x}, stringData: {a: " + strings.Repeat("x", 1<<20+1) + "}}", want: "Too long"},
		{name: "type changes", create: "{metadata: {name: t1}, type: a/b}", update: "{type: a/c}", want: "type: Invalid value"},
		{name: "immutable data", create: "{metadata: {name: i1}, immutable: true}", update: "{immutable: true, stringData: {a: x}}", want: "data: Forbidden"},
		{name: "tls", create: "{metadata: {name: tls}, type: kubernetes.io/tls, data: {tls.crt: '', tls.key: ''}}"},
		{name: "tls without a key", create: "{metadata: {name: x}, type: kubernetes.io/tls, data: {tls.crt: ''}}", want: "data[tls.key]: Required"},
		{name: "basic-auth", create: "{metadata: {name: x}, type: kubernetes.io/basic-auth}", want: "data[username]: Required"},
		{name: "ssh-auth", create: "{metadata: {name: x}, type: kubernetes.io/ssh-auth}", want: "data[ssh-privatekey]: Required"},
		{name: "docker config", create: "{metadata: {name: x}, type: kubernetes.io/dockerconfigjson, stringData: {.dockerconfigjson: nojson}}", want: "redacted"},
		{name: "service account's token", create: "{metadata: {name: x, annotations: {kubernetes.io/service-account.name: bot}}, type: kubernetes.io/service-account-token}", want: "kubectl create token bot"},
		{name: "service account token", create: "{metadata: {name: x}, type: kubernetes.io/service-account-token}", want: "metadata.annotations[kubernetes.io/service-account.name]"},
	},
	"v1 serviceaccounts": {
		{name: "sound", create: "{metadata: {name: a.b}, secrets: [{name: s}], imagePullSecrets: [{name: s}], automountServiceAccountToken: true}"},
		{name: "upper-case name", create: "{metadata: {name: A}}", want: "metadata.name"},
		{name: "changed", create: "{metadata: {name: c}}", update: "{secrets: [{name: t}]}"},
	},
	"v1 events": {
		{name: "sound", create: "{metadata: {name: e}, involvedObject: {namespace: default, name: x}}"},
		{name: "about a cluster-scoped object", create: "{metadata: {name: e2}, involvedObject: {name: x}}"},
		{name: "about another namespace", create: "{metadata: {name: x}, involvedObject: {namespace: other}}", want: "involvedObject.namespace"},
		{name: "new, about another namespace", create: "{metadata: {name: n1}, eventTime: '2026-01-01T00:00:00.000000Z', reportingComponent: a, reportingInstance: i, reason: r, action: a, involvedObject: {namespace: other}}"},
		{name: "new, about a cluster-scoped object", create: "{metadata: {name: n2}, eventTime: '2026-01-01T00:00:00.000000Z', reportingComponent: a, reportingInstance: i, reason: r, action: a, involvedObject: {name: x}}"},
		{name: "new, without a reporter", create: "{metadata: {name: x}, eventTime: '2026-01-01T00:00:00.000000Z', reason: r, action: a, involvedObject: {namespace: default}}", want: "reportingController: Required"},
	},
	"events.k8s.io/v1 events": {
		{name: "sound", create: "{" + newEvent + ", metadata: {name: nn}, type: Normal}"},
		{name: "about another namespace", create: "{" + strings.Replace(newEvent, "namespace: default", "namespace: other", 1) + ", metadata: {name: oth}, type: Normal}"},
		{name: "other type", create: "{" + newEvent + ", metadata: {name: x}, type: Odd}", want: "type: Invalid"},
		{name: "without time", create: "{metadata: {name: x}, reportingController: a, reportingInstance: i, action: a, reason: r, type: Normal, regarding: {namespace: default}}", want: "eventTime: Required"},
		{name: "old fields", create: "{" + newEvent + ", metadata: {name: x}, type: Normal, deprecatedCount: 1}", want: "count: Invalid"},
		{name: "series of one", create: "{" + newEvent + ", metadata: {name: x}, type: Normal, series: {count: 1, lastObservedTime: '2026-01-01T00:00:00.000000Z'}}", want: "series.count"},
		{name: "long note", create: "{" + newEvent + ", metadata: {name: x}, type: Normal, note: " + strings.Repeat("x", 1025) + "}", want: "message"},
		{name: "reason changes", create: "{" + newEvent + ", metadata: {name: r}, type: Normal}", update: "{reason: other}", want: "reason: Invalid"},
	},
	"coordination.k8s.io/v1 leases": {
		{name: "sound", create: "{metadata: {name: l}, spec: {holderIdentity: h, leaseDurationSeconds: 15, leaseTransitions: 0}}"},
		{name: "empty", create: "{metadata: {name: l2}}"},
		{name: "no duration", create: "{metadata: {name: x}, spec: {leaseDurationSeconds: 0}}", want: "spec.leaseDurationSeconds"},
		{name: "negative transitions", create: "{metadata: {name: x}, spec: {leaseTransitions: -1}}", want: "spec.leaseTransitions"},
		{name: "unknown strategy", create: "{metadata: {name: x}, spec: {strategy: Newest}}", want: "spec.strategy"},
		{name: "own strategy", create: "{metadata: {name: l3}, spec: {strategy: example.com/Newest, preferredHolder: h}}"},
		{name: "reserved strategy", create: "{metadata: {name: x}, spec: {strategy: a.k8s.io/Newest}}", want: "spec.strategy"},
		{name: "preferred holder alone", create: "{metadata: {name: x}, spec: {preferredHolder: h}}", want: "spec.preferredHolder"},
	},
	"coordination.k8s.io/v1beta1 leasecandidates": {
		{name: "sound", create: "{metadata: {name: c}, spec: {leaseName: l, binaryVersion: 1.2.0, emulationVersion: 1.1.0, strategy: OldestEmulationVersion}}"},
		{name: "empty", create: "{metadata: {name: x}, spec: {}}", want: "spec.leaseName: Required"},
		{name: "v", create: "{metadata: {name: x}, spec: {leaseName: l, binaryVersion: v1.2.0, strategy: a.b/c}}", want: "spec.binaryVersion"},
		{name: "emulates the future", create: "{metadata: {name: x}, spec: {leaseName: l, binaryVersion: 1.2.0, emulationVersion: 1.3.0, strategy: a.b/c}}", want: "emulationVersion"},
		{name: "no emulation", create: "{metadata: {name: x}, spec: {leaseName: l, binaryVersion: 1.2.0, strategy: OldestEmulationVersion}}", want: "spec.emulationVersion: Required"},
		{name: "other lease", create: "{metadata: {name: o}, spec: {leaseName: l, binaryVersion: 1.2.0, strategy: a.b/c}}", update: "{spec: {leaseName: m}}", want: "spec.leaseName"},
	},
	"rbac.authorization.k8s.io/v1 roles": {
		{name: "sound", create: "{metadata: {name: 'a:b.C'}, rules: [{verbs: [get], apiGroups: [''], resources: [configmaps], resourceNames: [x]}]}"},
		{name: "without rules", create: "{metadata: {name: empty}}"},
		{name: "name that leads elsewhere", create: "{metadata: {name: 'a%b'}}", want: "metadata.name"},
		{name: "no verbs", create: "{metadata: {name: x}, rules: [{apiGroups: [''], resources: [configmaps]}]}", want: "rules[0].verbs: Required"},
		{name: "no groups", create: "{metadata: {name: x}, rules: [{verbs: [get], resources: [configmaps]}]}", want: "rules[0].apiGroups: Required"},
		{name: "no resources", create: "{metadata: {name: x}, rules: [{verbs: [get], apiGroups: ['']}]}", want: "rules[0].resources: Required"},
		{name: "URLs", create: "{metadata: {name: x}, rules: [{verbs: [get], nonResourceURLs: [/metrics]}]}", want: "rules[0].nonResourceURLs"},
	},
	"rbac.authorization.k8s.io/v1 clusterroles": {
		{name: "sound", create: "{metadata: {name: r}, rules: [{verbs: ['*'], apiGroups: ['*'], resources: ['*/status']}, {verbs: [get], nonResourceURLs: ['/healthz/*']}]}"},
		{name: "URLs and resources", create: "{metadata: {name: x}, rules: [{verbs: [get], apiGroups: [''], resources: [configmaps], nonResourceURLs: [/metrics]}]}", want: "both regular resources and non-resource URLs"},
		{name: "aggregation", create: "{metadata: {name: ag}, aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}}"},
		{name: "aggregation of nothing", create: "{metadata: {name: x}, aggregationRule: {}}", want: "aggregationRule.clusterRoleSelectors: Required"},
		{name: "aggregation by a bad label", create: "{metadata: {name: x}, aggregationRule: {clusterRoleSelectors: [{matchLabels: {'a b': c}}]}}", want: "clusterRoleSelectors[0]"},
	},
	"rbac.authorization.k8s.io/v1 rolebindings": {
		{name: "sound", create: "{metadata: {name: b1}, roleRef: {kind: Role, name: r}, subjects: [{kind: User, name: ann}, {kind: ServiceAccount, name: bot}]}"},
		{name: "to a cluster role", create: "{metadata: {name: b2}, roleRef: {kind: ClusterRole, name: view}, subjects: [{kind: Group, name: devs}]}"},
		{name: "other group's role", create: "{metadata: {name: x}, roleRef: {apiGroup: example.com, kind: Role, name: r}}", want: "roleRef.apiGroup"},
		{name: "other kind of role", create: "{metadata: {name: x}, roleRef: {kind: Roll, name: r}}", want: "roleRef.kind"},
		{name: "no role", create: "{metadata: {name: x}, roleRef: {kind: Role}}", want: "roleRef.name: Required"},
		{name: "a subject without a name", create: "{metadata: {name: x}, roleRef: {kind: Role, name: r}, subjects: [{kind: User}]}", want: "subjects[0].name: Required"},
		{name: "no such kind of subject", create: "{metadata: {name: x}, roleRef: {kind: Role, name: r}, subjects: [{kind: Usr, name: ann}]}", want: "subjects[0].kind"},
		{name: "an account of another group", create: "{metadata: {name: x}, roleRef: {kind: Role, name: r}, subjects: [{kind: ServiceAccount, apiGroup: rbac.authorization.k8s.io, name: bot}]}", want: "subjects[0].apiGroup"},
		{name: "role changed", create: "{metadata: {name: b3}, roleRef: {kind: Role, name: r}}", update: "{roleRef: {kind: Role, name: s}}", want: "cannot change roleRef"},
		{name: "subjects changed", create: "{metadata: {name: b4}, roleRef: {kind: Role, name: r}}", update: "{roleRef: {kind: Role, name: r}, subjects: [{kind: User, name: ann}]}"},
	},
	"rbac.authorization.k8s.io/v1 clusterrolebindings": {
		{name: "sound", create: "{metadata: {name: cb1}, roleRef: {kind: ClusterRole, name: r}, subjects: [{kind: ServiceAccount, namespace: default, name: bot}]}"},
		{name: "to a role of a namespace", create: "{metadata: {name: x}, roleRef: {kind: Role, name: r}}", want: "roleRef.kind"},
		{name: "an account of no namespace", create: "{metadata: {name: x}, roleRef: {kind: ClusterRole, name: r}, subjects: [{kind: ServiceAccount, name: bot}]}", want: "subjects[0].namespace: Required"},
		{name: "role changed", create: "{metadata: {name: cb2}, roleRef: {kind: ClusterRole, name: r}}", update: "{roleRef: {kind: ClusterRole, name: s}}", want: "cannot change roleRef"},
	},
	"tenancy.kcp.io/v1alpha1 workspaces": {
		{name: "created by nobody", create: "{metadata: {name: x, annotations: {experimental.tenancy.kcp.io/owner: ann}}, spec: {}}", want: "experimental.tenancy.kcp.io/owner"},
		{name: "created by somebody", create: "{metadata: {name: by, annotations: {experimental.tenancy.kcp.io/owner: '{\"username\":\"ann\"}'}}, spec: {}}"},
		{name: "sound", create: "{metadata: {name: w}, spec: {type: {name: universal, path: root}}}"},
		{name: "name that is no path", create: "{metadata: {name: a.b}, spec: {}}", want: "metadata.name"},
		{name: "type name", create: "{metadata: {name: x}, spec: {type: {name: Universal}}}", want: "spec.type.name"},
		{name: "type path", create: "{metadata: {name: x}, spec: {type: {name: u, path: 'root:'}}}", want: "spec.type.path"},
		{name: "relative URL", create: "{metadata: {name: x}, spec: {URL: /a}}", want: "spec.URL"},
		{name: "mount without a kind", create: "{metadata: {name: x}, spec: {mount: {ref: {apiVersion: v1, kind: '', name: nn}}}}", want: "spec.mount.ref.kind"},
		{name: "selector", create: "{metadata: {name: x}, spec: {location: {selector: {matchLabels: {'a b': c}}}}}", want: "spec.location.selector"},
		{name: "all clusters", create: "{metadata: {name: x}, spec: {cluster: '*'}}", want: "spec.cluster"},
		{name: "a system cluster", create: "{metadata: {name: x}, spec: {cluster: 'system:admin'}}", want: "spec.cluster"},
		{name: "the root cluster", create: "{metadata: {name: x}, spec: {cluster: root}}", want: "spec.cluster"},
		{name: "no cluster's name", create: "{metadata: {name: x}, spec: {cluster: Bad_Name}}", want: "spec.cluster"},
		{name: "a path", create: "{metadata: {name: x}, spec: {cluster: 'root:a'}}", want: "spec.cluster"},
		{name: "to adopt no cluster", create: "{metadata: {name: x, annotations: {regent.dev/adopt: x7}}, spec: {}}", want: "regent.dev/adopt"},
		{name: "to adopt a cluster", create: "{metadata: {name: ad, annotations: {regent.dev/adopt: eu1/x7}}, spec: {}}"},
		{name: "cluster set", create: "{metadata: {name: c1}, spec: {}}", update: "{spec: {cluster: cc}}"},
		{name: "cluster changed", create: "{metadata: {name: c2}, spec: {cluster: cc}}", update: "{spec: {cluster: dd}}", want: "cluster is immutable"},
		{name: "cluster unset", create: "{metadata: {name: c3}, spec: {cluster: cc}}", update: "{spec: {cluster: ''}}", want: "cluster cannot be unset"},
		{name: "URL set", create: "{metadata: {name: u0}, spec: {}}", update: "{spec: {URL: 'https://c/d'}}"},
		{name: "URL changed", create: "{metadata: {name: u1}, spec: {URL: 'https://a/b'}}", update: "{spec: {URL: 'https://c/d'}}", want: "URL is immutable"},
		{name: "URL unset", create: "{metadata: {name: u2}, spec: {URL: 'https://a/b'}}", update: "{spec: {URL: ''}}", want: "URL cannot be unset"},
		{name: "type changed", create: "{metadata: {name: t1}, spec: {}}", update: "{spec: {type: {name: other, path: root}}}", want: "name is immutable"},
		{name: "type path changed", create: "{metadata: {name: t2}, spec: {}}", update: "{spec: {type: {name: universal, path: 'root:a'}}}", want: "path is immutable"},
		{name: "type left out", create: "{metadata: {name: t3}, spec: {type: {name: organization, path: root}}}", update: "{spec: {type: null}}"},
		{name: "a type that there is not", create: "{metadata: {name: x}, spec: {type: {name: tenant, path: 'root:acme'}}}", want: "spec.type: Invalid"},
		{name: "a type that there is elsewhere", create: "{metadata: {name: x}, spec: {type: {name: universal, path: 'root:acme'}}}", want: "spec.type: Invalid"},
		{name: "the default type without a path", create: "{metadata: {name: t4}, spec: {type: {name: universal}}}"},
		{name: "the type of a cluster to adopt", create: "{metadata: {name: t5, annotations: {regent.dev/adopt: eu1/x7}}, spec: {type: {name: tenant, path: 'root:acme'}}}"},
	},
	"core.kcp.io/v1alpha1 logicalclusters": {
		{name: "other name", create: "{metadata: {name: other}}", want: "metadata.name"},
		{name: "owner without a name", create: "{metadata: {name: cluster}, spec: {owner: {apiVersion: a/b, resource: r, name: '', cluster: c, uid: u}}}", want: "spec.owner.name"},
		{name: "owner version", create: "{metadata: {name: cluster}, spec: {owner: {apiVersion: a/b/c, resource: r, name: nn, cluster: c, uid: u}}}", want: "spec.owner.apiVersion"},
		{name: "initializer", create: "{metadata: {name: cluster}, spec: {initializers: [A]}}", want: "spec.initializers[0]"},
		{name: "sound, and then its owner changed", create: "{metadata: {name: cluster}, spec: {initializers: ['root:universal', 'system:x'], owner: {apiVersion: a/b, resource: r, name: nn, cluster: c, uid: u}}}", update: "{spec: {owner: {name: other}}}", want: "owner is immutable"},
	},
	"core.kcp.io/v1alpha1 shards": {
		{name: "sound", create: "{metadata: {name: s1, annotations: {regent.dev/replicas: 'https://a:1, https://b:2/'}}, spec: {baseURL: 'https://a:1'}}"},
		{name: "no URL", create: "{metadata: {name: s2}}", want: "spec.baseURL"},
		{name: "not encrypted", create: "{metadata: {name: s3}, spec: {baseURL: 'http://a:1'}}", want: "spec.baseURL"},
		{name: "a cluster's URL", create: "{metadata: {name: s4}, spec: {baseURL: 'https://a:1/clusters/root'}}", want: "spec.baseURL"},
		{name: "external URL", create: "{metadata: {name: s5}, spec: {baseURL: 'https://a:1', externalURL: 'a:1'}}", want: "spec.externalURL"},
		{name: "a replica", create: "{metadata: {name: s6, annotations: {regent.dev/replicas: 'https://a:1,b:2'}}, spec: {baseURL: 'https://a:1'}}", want: "regent.dev/replicas"},
		{name: "a name that fits in no label", create: "{metadata: {name: 'a.b'}, spec: {baseURL: 'https://a:1'}}", want: "metadata.name"},
		{name: "its URL changed", create: "{metadata: {name: s7}, spec: {baseURL: 'https://a:1'}}", update: "{spec: {baseURL: 'https://b:1'}}"},
	},
	"apiextensions.k8s.io/v1 customresourcedefinitions": {
		{name: "sound", create: definitionOf("as", "", "")},
		{name: "name that is not the resource's", create: strings.Replace(definitionOf("bs", "", ""), "bs.example.com", "cs.example.com", 1), want: "metadata.name"},
		{name: "no schema", create: strings.Replace(definitionOf("ds", "", ""), "schema", "noSchema", 1), want: "spec.versions[0].schema.openAPIV3Schema: Required"},
		{name: "property without a type", create: definitionOf("es", ", properties: {a: {}}", ""), want: "properties[a].type: Required"},
		{name: "rule that is no CEL", create: definitionOf("fs", ", x-kubernetes-validations: [{rule: 'self.'}]", ""), want: "x-kubernetes-validations[0].rule"},
		{name: "rule that costs too much", create: definitionOf("gs", ", properties: {a: {type: array, items: {type: string}}}, x-kubernetes-validations: [{rule: 'self.a.all(x, self.a.all(y, self.a.all(z, x == y)))'}]", ""), want: "exceeds budget"},
		{name: "plural with a dot", create: definitionOf("h.s", "", ""), want: "spec.names.plural"},
		{name: "scope changed", create: definitionOf("is", "", ""), update: "{spec: {scope: Namespaced}}"},
		{name: "group changed", create: definitionOf("js", "", ""), update: "{spec: {group: other.example.com}}", want: "spec.group"},
		{name: "kubernetes' own without approval", create: strings.ReplaceAll(definitionOf("ks", "", ""), "example.com", "example.k8s.io"), want: "metadata.annotations[api-approved.kubernetes.io]: Required"},
		{name: "webhook without a client", create: definitionOf("ls", "", ", conversion: {strategy: Webhook}"), want: "spec.conversion.webhookClientConfig: Required"},
	},
	"apis.kcp.io/v1alpha1 apiresourceschemas": {
		{name: "sound", create: schemaOf("v1.as", "as", "", "")},
		{name: "no prefix", create: schemaOf("bs", "bs", "", ""), want: "metadata.name"},
		{name: "another resource's name", create: schemaOf("v1.other", "cs", "", ""), want: "metadata.name"},
		{name: "property without a type", create: schemaOf("v1.es", "es", ", properties: {a: {}}", ""), want: "properties[a].type: Required"},
		{name: "rule that is no CEL", create: schemaOf("v1.fs", "fs", ", x-kubernetes-validations: [{rule: 'self.'}]", ""), want: "x-kubernetes-validations[0].rule"},
		{name: "kubernetes' own without approval", create: strings.ReplaceAll(schemaOf("v1.ks", "ks", "", ""), "example.com", "example.k8s.io"), want: "api-approved.kubernetes.io"},
		{name: "the core group", create: strings.ReplaceAll(schemaOf("v1.ls", "ls", "", ""), "group: example.com", "group: ''"), want: "metadata.name"},
		{name: "other names of objects", create: schemaOf("v1.ms", "ms", "", ", nameValidation: PathSegmentName"), want: "spec.nameValidation"},
		{name: "two versions, and no conversion", create: strings.Replace(schemaOf("v1.ns", "ns", "", ""), "versions: [", "versions: [{name: v0, served: true, storage: false, schema: {type: object}}, ", 1), want: "spec.conversion: Required"},
		{name: "two versions", create: strings.Replace(schemaOf("v1.os", "os", "", ", conversion: {strategy: None}"), "versions: [", "versions: [{name: v2, served: true, storage: false, schema: {type: object}}, ", 1)},
		{name: "no storage", create: strings.Replace(schemaOf("v1.ps", "ps", "", ""), "storage: true", "storage: false", 1), want: "spec.versions"},
		{name: "changed", create: schemaOf("v1.qs", "qs", "", ""), update: "{spec: {scope: Namespaced}}", want: "spec: Forbidden"},
		{name: "labelled", create: schemaOf("v1.rs", "rs", "", ""), update: "{metadata: {labels: {a: b}}}"},
	},
	"apis.kcp.io/v1alpha2 apiexports": {
		{name: "sound", create: "{metadata: {name: a}, spec: {resources: [{name: as, group: example.com, schema: v1.as.example.com, storage: {crd: {}}}]}}"},
		{name: "of nothing", create: "{metadata: {name: b}}"},
		{name: "another resource's schema", create: "{metadata: {name: x}, spec: {resources: [{name: as, group: example.com, schema: v1.bs.example.com}]}}", want: "spec.resources[0].schema"},
		{name: "a resource twice", create: "{metadata: {name: x}, spec: {resources: [{name: as, group: e.f, schema: v1.as.e.f}, {name: as, group: e.f, schema: v2.as.e.f}]}}", want: "spec.resources[1]: Duplicate"},
		{name: "the core group", create: "{metadata: {name: x}, spec: {resources: [{name: as, group: '', schema: v1.as.core}]}}", want: "spec.resources[0].group: Required"},
		{name: "a virtual resource", create: "{metadata: {name: x}, spec: {resources: [{name: as, group: e.f, schema: v1.as.e.f, storage: {virtual: {reference: {kind: K, name: nn}, identityHash: h}}}]}}", want: "storage.virtual: Forbidden"},
		{name: "a policy that nobody would enforce", create: "{metadata: {name: x}, spec: {maximalPermissionPolicy: {local: {}}}}", want: "spec.maximalPermissionPolicy: Forbidden"},
		{name: "claims, which nobody grants", create: "{metadata: {name: c}, spec: {permissionClaims: [{resource: secrets, verbs: ['*']}]}}"},
		{name: "another schema", create: "{metadata: {name: d}, spec: {resources: [{name: as, group: e.f, schema: v1.as.e.f}]}}", update: "{spec: {resources: [{name: as, group: e.f, schema: v2.as.e.f}]}}"},
	},
	"apis.kcp.io/v1alpha2 apibindings": {
		{name: "sound", create: "{metadata: {name: a}, spec: {reference: {export: {path: 'root:a', name: e}}}}"},
		{name: "in the same cluster", create: "{metadata: {name: b}, spec: {reference: {export: {name: e}}}}"},
		{name: "of nothing", create: "{metadata: {name: x}, spec: {reference: {}}}", want: "spec.reference.export: Required"},
		{name: "of an export without a name", create: "{metadata: {name: x}, spec: {reference: {export: {path: root, name: ''}}}}", want: "spec.reference.export.name: Required"},
		{name: "a path that leads elsewhere", create: "{metadata: {name: x}, spec: {reference: {export: {path: '../root', name: e}}}}", want: "spec.reference.export.path"},
		{name: "a claim of nothing", create: "{metadata: {name: x}, spec: {reference: {export: {name: e}}, permissionClaims: [{resource: secrets, verbs: ['*'], state: Accepted, selector: {}}]}}", want: "permissionClaims"},
		{name: "another export", create: "{metadata: {name: c}, spec: {reference: {export: {name: e}}}}", update: "{spec: {reference: {export: {name: f}}}}", want: "spec.reference: Forbidden"},
		{name: "the cluster left out", create: "{metadata: {name: d}, spec: {reference: {export: {name: e}}}}", update: "{metadata: {annotations: null}}"},
	},
}

// schemaOf is an APIResourceSchema whose schema and spec have more.
func schemaOf(name, plural, schema, spec string) string {
	return "{metadata: {name: " + name + ".example.com}, spec: {group: example.com, scope: Cluster, names: {plural: " + plural + ", kind: Kind" +
		plural + "}, versions: [{name: v1, served: true, storage: true, schema: {type: object" + schema + "}}]" + spec + "}}"
}

// definitionOf is a definition whose schema and spec have more.
func definitionOf(plural, schema, spec string) string {
	return "{metadata: {name: " + plural + ".example.com}, spec: {group: example.com, scope: Cluster, names: {plural: " + plural + ", kind: Kind" +
		plural + "}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object" + schema + "}}}]" + spec + "}}"
}

const newEvent = "eventTime: '2026-01-01T00:00:00.000000Z', reportingController: a, reportingInstance: i, action: a, reason: r, regarding: {namespace: default}"

func TestValidation(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	expectLines(t, s.served(t), validationCases, "validation cases")
	any := s.dynamic(t, "aa")
	for resource, cases := range validationCases {
		version, name, _ := strings.Cut(resource, " ")
		gv, err := schema.ParseGroupVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		var client dynamic.ResourceInterface = any.Resource(gv.WithResource(name))
		if namespacedResource(name) {
			client = any.Resource(gv.WithResource(name)).Namespace("default")
		}
		for _, c := range cases {
			t.Run(fmt.Sprintf("%s/%s", name, c.name), func(t *testing.T) {
				err := apply(t, client, gv, name, c)
				if c.want == "" && err != nil {
					t.Errorf("refused: %v", err)
				}
				if c.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("got %v, want a refusal because of %s", err, c.want)
				}
			})
		}
	}
}

func namespacedResource(name string) bool {
	for _, r := range Resources() {
		if r.GVR.Resource == name {
			return r.Namespaced
		}
	}
	return false
}

// apply creates the object of a case and, if it has one, makes its update.
func apply(t *testing.T, client dynamic.ResourceInterface, gv schema.GroupVersion, resource string, c validationCase) error {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(c.create), &obj.Object); err != nil {
		t.Fatal(err)
	}
	obj.SetAPIVersion(gv.String())
	obj.SetKind(kindOf(resource))
	created, err := client.Create(t.Context(), obj, metav1.CreateOptions{})
	if err != nil || c.update == "" {
		return err
	}
	changed := map[string]any{}
	if err := yaml.Unmarshal([]byte(c.update), &changed); err != nil {
		t.Fatal(err)
	}
	merge(created.Object, changed)
	_, err = client.Update(t.Context(), created, metav1.UpdateOptions{})
	return err
}

func kindOf(resource string) string {
	for _, r := range Resources() {
		if r.GVR.Resource == resource {
			return r.Kind
		}
	}
	return ""
}

func merge(into, from map[string]any) {
	for k, v := range from {
		inner, ok := v.(map[string]any)
		old, both := into[k].(map[string]any)
		if ok && both {
			merge(old, inner)
			continue
		}
		into[k] = v
	}
}
