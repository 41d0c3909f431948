package apis

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/regent-project/regent/pkg/server/apis/openapi"
	"github.com/regent-project/regent/test/etcdtest"
)

// fate is what becomes of a field, and of all that is in it.
type fate struct {
	// read says who reads it, or who writes it, of a status. never says why it has no effect. Either is set.
	read, never string
	// refused and warned are writes with such a field, which are refused, or are warned of by words that begin with
	// the field's path. Fields of a status need neither.
	refused, warned *validationCase
}

func refused(never, create string) fate {
	return fate{never: never, refused: &validationCase{create: create}}
}

func warned(never, create string) fate {
	return fate{never: never, warned: &validationCase{create: create}}
}

// fates has all fields of kcp's types. A field that upstream adds is not in it, and does nothing: decide what to do
// with it. What kcp's own tools send is warned of at most.
var fates = map[string]fate{
	"Workspace spec.type.name":         {read: "typesOfKCP; the LogicalCluster's annotation"},
	"Workspace spec.type.path":         {read: "typesOfKCP; the LogicalCluster's annotation"},
	"Workspace spec.location.selector": {read: "place, of the controller of workspaces"},
	"Workspace spec.cluster":           {read: "everybody; TenancyProtection refuses users' values"},
	"Workspace spec.URL":               {read: "everybody; TenancyProtection refuses users' values"},
	"Workspace spec.mount":             refused("there are no mounts", "{metadata: {name: f}, spec: {mount: {ref: {apiVersion: v1, kind: K, name: nn}}}}"),
	"Workspace status.phase":           {read: "set by the controller of workspaces"},
	"Workspace status.conditions":      {read: "set by the controller of workspaces"},
	"Workspace status.initializers":    {read: "set by the controller of workspaces"},
	"Workspace status.terminators":     {read: "set by the controller of workspaces"},

	"LogicalCluster spec.directlyDeletable": {never: "whoever may delete it can", refused: &validationCase{create: "{metadata: {name: cluster}}", update: "{spec: {directlyDeletable: true}}"}},
	"LogicalCluster spec.owner":             {read: "ownerOf, of the controller of logical clusters; only the leader sets it"},
	"LogicalCluster spec.initializers":      {read: "advanced, of the controller of logical clusters; refused once they were copied"},
	"LogicalCluster spec.terminators":       {read: "advanced, of the controller of logical clusters; refused once they were copied"},
	"LogicalCluster status.URL":             {read: "set by the controller of logical clusters"},
	"LogicalCluster status.phase":           {read: "set by the controller of logical clusters"},
	"LogicalCluster status.conditions":      {read: "set by the controllers of logical clusters and of assignments"},
	"LogicalCluster status.initializers":    {read: "set by the controller of logical clusters"},
	"LogicalCluster status.terminators":     {read: "set by the controller of logical clusters"},

	"Shard spec.baseURL":             {read: "clusters.ReplicasOf"},
	"Shard spec.externalURL":         warned("it is shown", "{metadata: {name: fe}, spec: {baseURL: 'https://a:1', externalURL: 'https://b:1'}}"),
	"Shard spec.virtualWorkspaceURL": warned("there are no virtual workspaces", "{metadata: {name: fv}, spec: {baseURL: 'https://a:1', virtualWorkspaceURL: 'https://b:1'}}"),
	"Shard status.capacity":          {read: "set by the controller of members"},
	"Shard status.conditions":        {never: "nobody sets any"},

	"APIResourceSchema spec.group":                                       {read: "kcpapis.Definition"},
	"APIResourceSchema spec.names":                                       {read: "kcpapis.Definition"},
	"APIResourceSchema spec.scope":                                       {read: "kcpapis.Definition"},
	"APIResourceSchema spec.nameValidation":                              {never: "names are those of custom resources", refused: &validationCase{create: schemaOf("v1.fs", "fs", "", ", nameValidation: PathSegmentName")}},
	"APIResourceSchema spec.versions.name":                               {read: "kcpapis.Definition"},
	"APIResourceSchema spec.versions.served":                             {read: "kcpapis.Definition"},
	"APIResourceSchema spec.versions.storage":                            {read: "kcpapis.Definition"},
	"APIResourceSchema spec.versions.deprecated":                         {read: "kcpapis.Definition"},
	"APIResourceSchema spec.versions.deprecationWarning":                 {read: "kcpapis.Definition"},
	"APIResourceSchema spec.versions.schema":                             {read: "kcpapis.Definition"},
	"APIResourceSchema spec.versions.subresources":                       {read: "kcpapis.Definition"},
	"APIResourceSchema spec.versions.additionalPrinterColumns":           {read: "kcpapis.Definition"},
	"APIResourceSchema spec.conversion.strategy":                         {read: "kcpapis.Conversion"},
	"APIResourceSchema spec.conversion.webhook.clientConfig.url":         {read: "kcpapis.Conversion"},
	"APIResourceSchema spec.conversion.webhook.clientConfig.caBundle":    {read: "kcpapis.Conversion"},
	"APIResourceSchema spec.conversion.webhook.conversionReviewVersions": {read: "kcpapis.Conversion"},

	"APIExport spec.resources.name":            {read: "validateExport: it is the schema's"},
	"APIExport spec.resources.group":           {read: "validateExport: it is the schema's"},
	"APIExport spec.resources.schema":          {read: "the controller of definitions"},
	"APIExport spec.resources.storage.crd":     {read: "validateExport: it is the only way"},
	"APIExport spec.resources.storage.virtual": refused("there are no virtual resources", "{metadata: {name: f}, spec: {resources: [{name: as, group: e.f, schema: v1.as.e.f, storage: {virtual: {reference: {kind: K, name: nn}, identityHash: h}}}]}}"),
	"APIExport spec.identity":                  warned("identities are made of uids", "{metadata: {name: fi}, spec: {identity: {secretRef: {name: s, namespace: default}}}}"),
	"APIExport spec.maximalPermissionPolicy":   refused("nobody would enforce it", "{metadata: {name: f}, spec: {maximalPermissionPolicy: {local: {}}}}"),
	"APIExport spec.permissionClaims":          warned("claims are not granted", "{metadata: {name: fc}, spec: {permissionClaims: [{resource: secrets, verbs: ['*']}]}}"),
	"APIExport status.identityHash":            {read: "set when it is created"},
	"APIExport status.conditions":              {read: "set when it is created"},
	"APIExport status.virtualWorkspaces":       {never: "there are none"},

	"APIBinding spec.reference.export.path":                {read: "admission.Bindings"},
	"APIBinding spec.reference.export.name":                {read: "admission.Bindings"},
	"APIBinding spec.permissionClaims":                     warned("claims are not granted", "{metadata: {name: fc}, spec: {reference: {export: {name: e}}, permissionClaims: [{resource: secrets, verbs: ['*'], state: Accepted, selector: {matchAll: true}}]}}"),
	"APIBinding status.apiExportClusterName":               {read: "set by the controller of definitions"},
	"APIBinding status.boundResources.group":               {read: "set by the controller of definitions"},
	"APIBinding status.boundResources.resource":            {read: "set by the controller of definitions"},
	"APIBinding status.boundResources.schema.name":         {read: "set by the controller of definitions"},
	"APIBinding status.boundResources.schema.UID":          {read: "set by the controller of definitions"},
	"APIBinding status.boundResources.schema.identityHash": {read: "set by the controller of definitions"},
	"APIBinding status.boundResources.storageVersions":     {read: "set by the controller of definitions"},
	"APIBinding status.phase":                              {read: "set by the controller of definitions"},
	"APIBinding status.conditions":                         {read: "set by the controller of definitions"},
	"APIBinding status.appliedPermissionClaims":            {never: "claims are not granted"},
	"APIBinding status.exportPermissionClaims":             {read: "set by the controller of definitions"},
}

const ofKCP = "com.github.kcp-dev.sdk.apis."

// fieldOfKCP is a field of one of kcp's kinds.
type fieldOfKCP struct {
	// at is <kind> <path>.
	at string
	// explained says that this server describes it in words of its own: it, or what it is in.
	explained bool
	// leaf says that nothing in it is kcp's.
	leaf bool
}

// fieldsOfKCP returns all fields in the spec and in the status of kcp's kinds, as upstream describes them.
func fieldsOfKCP() []fieldOfKCP {
	ref := func(name string) spec.Ref { return spec.MustCreateRef(name) }
	upstream, own := openapi.GetOpenAPIDefinitions(ref), openapi.Definitions(ref)
	var out []fieldOfKCP
	for _, object := range Types() {
		name := util.GetCanonicalTypeName(object)
		if kind := name[strings.LastIndex(name, ".")+1:]; strings.HasPrefix(name, ofKCP) && !strings.HasSuffix(kind, "List") {
			for _, part := range []string{"spec", "status"} {
				if property, ok := upstream[name].Schema.Properties[part]; ok {
					out = append(out, walk(upstream, own, kind+" "+part, typeOf(property), false)...)
				}
			}
		}
	}
	return out
}

func walk(upstream, own map[string]common.OpenAPIDefinition, at, typ string, explained bool) []fieldOfKCP {
	var out []fieldOfKCP
	properties := upstream[typ].Schema.Properties
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		property := properties[name]
		f := fieldOfKCP{at: at + "." + name, explained: explained || property.Description != own[typ].Schema.Properties[name].Description}
		in := typeOf(property)
		f.leaf = !strings.HasPrefix(in, ofKCP) || strings.Contains(in, "third_party") || len(upstream[in].Schema.Properties) == 0
		out = append(out, f)
		if !f.leaf {
			out = append(out, walk(upstream, own, f.at, in, f.explained)...)
		}
	}
	return out
}

// typeOf returns the type of a property, or of its items.
func typeOf(property spec.Schema) string {
	if property.Items != nil && property.Items.Schema != nil {
		property = *property.Items.Schema
	}
	return property.Ref.String()
}

// A field that does nothing, and says nothing, is a trap: the user believes that something was done.
func TestEachFieldOfKCPIsReadOrRefusedOrWarnedOf(t *testing.T) {
	all := fieldsOfKCP()
	seen := map[string]bool{}
	for _, f := range all {
		at, of := "", fate{}
		for up := f.at; up != "" && at == ""; up = up[:max(strings.LastIndex(up, "."), 0)] {
			if found, ok := fates[up]; ok {
				at, of = up, found
				seen[up] = true
			}
		}
		switch {
		case at == "" && f.leaf:
			t.Errorf("upstream describes %s. Read it, refuse it or warn of it, and say so in fates", f.at)
		case at != "" && of.never != "" && !f.explained:
			t.Errorf("%s has no effect (%s), and kubectl explain says what kcp does: describe it in openapi/descriptions.go", f.at, of.never)
		case at == f.at && of.never != "" && of.refused == nil && of.warned == nil:
			t.Logf("%s has no effect, and nobody is told: %s", f.at, of.never)
		}
	}
	for at, of := range fates {
		if !seen[at] {
			t.Errorf("upstream has no field %s", at)
		}
		if (of.read == "") == (of.never == "") || of.read != "" && (of.refused != nil || of.warned != nil) {
			t.Errorf("%s is read or not: %+v", at, of)
		}
		if of.never != "" && of.refused == nil && of.warned == nil && strings.Contains(at, " spec.") {
			t.Errorf("%s does nothing, and users are not told", at)
		}
	}
	if len(all) < len(fates) {
		t.Errorf("upstream has %d fields, which cannot be", len(all))
	}
}

func TestWhatIsNotDoneIsRefusedOrWarnedOf(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	for _, r := range Resources() {
		gv := r.GVR.GroupVersion()
		told := &warnings{}
		config := s.config("aa")
		config.WarningHandler = told
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		for at, of := range fates {
			kind, path, _ := strings.Cut(at, " ")
			tried := cmp.Or(of.refused, of.warned)
			if kind != r.Kind || tried == nil {
				continue
			}
			t.Run(at, func(t *testing.T) {
				told.texts = nil
				err := apply(t, client.Resource(gv.WithResource(r.GVR.Resource)), gv, r.GVR.Resource, *tried)
				path = strings.Replace(path, "spec.resources", "spec.resources[0]", 1)
				if of.refused != nil && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), path+":")) {
					t.Errorf("not refused with 422: %v", err)
				}
				if of.warned != nil && (err != nil || !slices.ContainsFunc(told.texts, func(text string) bool { return strings.HasPrefix(text, path+":") })) {
					t.Errorf("not warned of: %q, %v", told.texts, err)
				}
			})
		}
	}
}

// warnings are what a client was warned of.
type warnings struct{ texts []string }

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.texts = append(w.texts, text) }

var _ rest.WarningHandler = (*warnings)(nil)

// kubectl explain shows what the served document says.
func TestExplainSaysWhatThisServerDoes(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	for gv, words := range map[schema.GroupVersion][]string{
		{Group: "tenancy.kcp.io", Version: "v1alpha1"}: {"this server has no WorkspaceTypes", "this server mounts nothing"},
		{Group: "core.kcp.io", Version: "v1alpha1"}:    {"directlyDeletable is not looked at"},
		{Group: "apis.kcp.io", Version: "v1alpha2"}:    {"this server grants no claims"},
	} {
		var document json.RawMessage
		s.get(t, fmt.Sprintf("/clusters/aa/openapi/v3/apis/%s", gv), "application/json", &document)
		for _, text := range words {
			if !strings.Contains(string(document), text) {
				t.Errorf("%s does not say %q", gv, text)
			}
		}
		for _, text := range []string{"workspacetypes/use", "Mounts", "APIDeployment"} {
			if strings.Contains(string(document), text) {
				t.Errorf("%s says %q", gv, text)
			}
		}
	}
}
