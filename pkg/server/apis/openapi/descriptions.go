package openapi

import (
	"strings"

	"k8s.io/kube-openapi/pkg/common"
)

// ofKCP begins the names of kcp's types.
const ofKCP = "com.github.kcp-dev.sdk.apis."

// descriptions are what kubectl explain says where kcp's own text is not true of this server: of types, and of their
// fields (type/field). What is said of a field holds for all that is in it.
var descriptions = map[string]string{
	"tenancy.v1alpha1.Workspace": "A Workspace makes a logical cluster: an endpoint like that of a Kubernetes cluster, with discovery, OpenAPI and resources of its own. spec.URL leads to it. " +
		"The logical cluster is below the one that has the Workspace, and may be on another shard.",
	"tenancy.v1alpha1.WorkspaceSpec/type": "type is kept and shown, and has no effect: this server has no WorkspaceTypes. If none is given, it is root:universal. The other types that every kcp has (organization, team, home) are accepted with a warning, all others are refused. " +
		"It cannot be changed. No right is needed to use a type.",
	"tenancy.v1alpha1.WorkspaceTypeReference":      "WorkspaceTypeReference names a type of workspaces. This server has none: see the field type.",
	"tenancy.v1alpha1.WorkspaceTypeReference/name": "name is the name of the type. It is kept and shown.",
	"tenancy.v1alpha1.WorkspaceTypeReference/path": "path is that of the workspace that has the type in kcp. It is kept and shown.",
	"tenancy.v1alpha1.WorkspaceSpec/location": "location says on which shards the logical cluster may be. Without it any shard may be taken: of those that fit, the one with the fewest logical clusters for its capacity. " +
		"It is read once, when the workspace gets its shard, which it keeps: a later change has no effect.",
	"tenancy.v1alpha1.WorkspaceLocation/selector":   "selector selects shards by the labels of their Shard objects. While none fits, the workspace waits, and the condition WorkspaceScheduled says why.",
	"tenancy.v1alpha1.WorkspaceSpec/mount":          "mount is refused: this server mounts nothing.",
	"tenancy.v1alpha1.Mount":                        "Mount names an object that kcp sends the traffic of a workspace to.",
	"tenancy.v1alpha1.WorkspaceStatus/phase":        "phase of the workspace (Scheduling, Initializing, Ready, Deleting), as the shard of its logical cluster has said last. While that shard is not heard, it stays; tables (kubectl get) say Unreachable in its place.",
	"tenancy.v1alpha1.WorkspaceStatus/initializers": "initializers are those of the LogicalCluster. This server sets none, because it has no WorkspaceTypes.",
	"tenancy.v1alpha1.WorkspaceStatus/terminators":  "terminators are those of the LogicalCluster. This server sets none, because it has no WorkspaceTypes.",

	"core.v1alpha1.LogicalClusterSpec/directlyDeletable": "directlyDeletable is not looked at, and cannot be changed: whoever may delete the LogicalCluster can delete it, with all that is in it, and its Workspace goes, too.",
	"core.v1alpha1.LogicalClusterSpec/initializers":      "initializers are copied to the status when initialization begins, and cannot be changed from then on. This server sets none, because it has no WorkspaceTypes.",
	"core.v1alpha1.LogicalClusterSpec/terminators":       "terminators are copied to the status when the deletion begins, and cannot be changed from then on. This server sets none: administrators of the logical cluster may.",
	"core.v1alpha1.LogicalClusterStatus/initializers":    "initializers are copied from the spec, and must be removed by controllers before the logical cluster can be used. It is Initializing until none is left.",
	"core.v1alpha1.LogicalClusterStatus/terminators":     "terminators are copied from the spec, and must be removed by controllers before the logical cluster can be deleted. It is Deleting until none is left.",

	"core.v1alpha1.Shard":                         "A Shard is a member of the installation: an etcd, and the replicas that serve it. Those in cluster root of the root shard say who is a member; all shards have copies of them.",
	"core.v1alpha1.ShardSpec/baseURL":             "baseURL is the URL under which other shards and fronts reach a replica of the shard, unless the annotation regent.dev/replicas names all of them (regent shard set --replica).",
	"core.v1alpha1.ShardSpec/externalURL":         "externalURL is shown, and has no effect: the URL that users get is --shard-base-url of the shard's replicas. It is baseURL if it is not given.",
	"core.v1alpha1.ShardSpec/virtualWorkspaceURL": "virtualWorkspaceURL has no effect: this server has no virtual workspaces. It is baseURL if it is not given.",
	"core.v1alpha1.ShardStatus/capacity":          "capacity says how many logical clusters the shard can have (clusters), and how many it has (used-clusters), in the shard's own copy.",
	"core.v1alpha1.ShardStatus/conditions":        "conditions are always empty: this server sets none.",

	"apis.v1alpha1.APIResourceSchema":                    "APIResourceSchema describes a resource, for an APIExport to offer it. Its spec never changes: make another one, and have the APIExport name that. It may be deleted: APIBindings keep what they have bound.",
	"apis.v1alpha1.APIResourceSchemaSpec/group":          "group is the API group of the resource. It must not be empty, nor one that this server has built in.",
	"apis.v1alpha1.APIResourceSchemaSpec/versions":       "versions are the API versions of the resource, with a schema each. If there are several, conversion says how objects are converted between them.",
	"apis.v1alpha1.APIResourceSchemaSpec/nameValidation": "nameValidation must be DNS1123Subdomain, which is the default: names of objects are those of custom resources.",
	"apis.v1alpha1.WebhookClientConfig/url":              "url is where the webhook is: https://host:port/path, without a user, a query or a fragment. It must be in a network in which the operator lets webhooks be called (--conversion-webhook-networks). There are no services.",

	"apis.v1alpha2.APIExportSpec/resources": "resources are the APIResourceSchemas that are offered. APIBindings follow when another schema is named, unless its kind or scope is another one, or it lacks a version in which objects may be stored. " +
		"What is not named any more stays bound.",
	"apis.v1alpha2.ResourceSchema/group":                  "group is the API group of the resource. It must not be empty.",
	"apis.v1alpha2.ResourceSchemaStorage/virtual":         "virtual is refused: this server has no virtual resources.",
	"apis.v1alpha2.APIExportSpec/identity":                "identity is not used, and warned of: the identity of an export is made of its uid. It names the export, is no secret, and does not decide where objects are stored.",
	"apis.v1alpha2.Identity":                              "Identity names a Secret, which kcp makes the identity of.",
	"apis.v1alpha2.APIExportSpec/maximalPermissionPolicy": "maximalPermissionPolicy is refused: this server does not limit what users of a bound resource may do.",
	"apis.v1alpha2.APIExportSpec/permissionClaims":        "permissionClaims are not granted, and warned of: APIBindings get the resources only. There are no virtual workspaces.",
	"apis.v1alpha2.APIExportStatus/identityHash":          "identityHash is the identity of the export, made of its uid. It never changes.",
	"apis.v1alpha2.APIExportStatus/virtualWorkspaces":     "virtualWorkspaces is always empty: this server has no virtual workspaces.",

	"apis.v1alpha2.APIBindingSpec/permissionClaims":          "permissionClaims are not granted, whether accepted or rejected, and warned of. The condition PermissionClaimsApplied is False with reason NotSupported.",
	"apis.v1alpha2.ExportBindingReference/path":              "path is that of the logical cluster that has the APIExport, or its name. It must be on the same shard. It is resolved once, when the binding is made. If it is not given, the export is in the same logical cluster.",
	"apis.v1alpha2.APIBindingStatus/appliedPermissionClaims": "appliedPermissionClaims is always empty: this server grants no claims.",
	"apis.v1alpha2.APIBindingStatus/exportPermissionClaims":  "exportPermissionClaims are what the APIExport asks for. They are not granted.",
	"apis.v1alpha2.BoundAPIResource/storageVersions":         "storageVersions are all versions in which objects may be stored. This server adds to them, and removes none.",
	"apis.v1alpha2.BoundAPIResourceSchema/identityHash":      "identityHash is the identity of the export: see its status. It does not decide where objects are stored.",
}

// describe puts the descriptions in the place of upstream's. all has just been made, and nobody else has it. It has the
// types and fields (TestEachDescriptionIsOfAFieldThatUpstreamHas).
func describe(all map[string]common.OpenAPIDefinition) {
	for at, text := range descriptions {
		name, field, ofField := strings.Cut(at, "/")
		definition := all[ofKCP+name]
		if ofField {
			property := definition.Schema.Properties[field]
			property.Description = text
			definition.Schema.Properties[field] = property
		} else {
			definition.Schema.Description = text
		}
		all[ofKCP+name] = definition
	}
}
