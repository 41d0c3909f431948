// Package tenancy describes tenancy.kcp.io/v1alpha1: workspaces.
package tenancy

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/apis/kcpcore"
	"github.com/regent-project/regent/pkg/server/apis/resource"
)

// The type of a workspace that names none. It is kcp's most general type.
const (
	defaultType     = "universal"
	defaultTypePath = "root"
)

// typesOfKCP are those that every kcp has. People give them to kcp's tools, as its documentation says, and expect no
// more of them than a workspace: so all but the default are warned of, and not refused.
var typesOfKCP = []tenancyv1alpha1.WorkspaceTypeName{defaultType, "organization", "team", "home"}

// creatorKey is the annotation that says who has created a workspace.
const creatorKey = tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey

var (
	typeName = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
	adoption = regexp.MustCompile(`^[a-z0-9-]+/[a-z0-9-]+$`)
	typePath = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
)

// Resources are the resources of the group.
var Resources = []resource.Described{workspaces}

type workspace = *tenancyv1alpha1.Workspace

var workspaces = resource.Definition[workspace]{
	GVR:        tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces"),
	ShortNames: []string{"ws"},
	Categories: []string{"kcp"},
	List:       &tenancyv1alpha1.WorkspaceList{},
	// kcp's types have no protobuf encoding.
	Stored: resource.Stored[workspace]{JSONOnly: true},
	// A workspace's name is a part of its path.
	Name:          validation.NameIsDNSLabel,
	Unconditional: true,
	Reset:         fieldpath.NewSet(fieldpath.MakePathOrDie("status")),
	Default:       func(w workspace) { kcpcore.SetPhaseDefault(&w.Status.Phase) },
	PrepareCreate: func(w workspace) {
		w.Generation = 1
		w.Status = tenancyv1alpha1.WorkspaceStatus{Phase: corev1alpha1.LogicalClusterPhaseScheduling}
		if w.Spec.Type == nil {
			w.Spec.Type = &tenancyv1alpha1.WorkspaceTypeReference{Name: defaultType, Path: defaultTypePath}
		}
	},
	PrepareUpdate: func(w, old workspace) {
		w.Status = old.Status
		if creator := old.Annotations[creatorKey]; creator != "" && w.Annotations[creatorKey] == "" {
			// whoever replaces the object need not know it
			metav1.SetMetaDataAnnotation(&w.ObjectMeta, creatorKey, creator)
		}
		if w.Spec.Type == nil {
			w.Spec.Type = old.Spec.Type
		}
		if !equality.Semantic.DeepEqual(w.Spec, old.Spec) {
			w.Generation = old.Generation + 1
		}
	},
	Validate:       validateWorkspace,
	ValidateCreate: func(w workspace) field.ErrorList { return refuseNew(w, nil) },
	ValidateUpdate: validateWorkspaceUpdate,
	Warn:           warn,
	Columns: []resource.Column[workspace]{
		resource.Name[workspace](),
		{Name: "Type", Description: "Type of the workspace", Cell: func(w workspace) any {
			if w.Spec.Type == nil {
				return ""
			}
			return string(w.Spec.Type.Name)
		}},
		{Name: "Shard", Description: "The shard that has the workspace's logical cluster", Among: func(shards *resource.Shards, w workspace) any { return clusters.HomeOf(w, shards.Own) }},
		{Name: "Phase", Description: "The current phase (e.g. Scheduling, Initializing, Ready, Deleting), or Unreachable while its shard is not heard", Among: func(shards *resource.Shards, w workspace) any {
			if clusters.IsUnreachable(w, shards.Own, shards.Answers) {
				return unreachable
			}
			return string(w.Status.Phase)
		}},
		{Name: "URL", Description: "URL to access the workspace", Cell: func(w workspace) any { return w.Spec.URL }},
		resource.Age[workspace](),
	},
	Subresources: map[string]resource.Subresource[workspace]{"status": workspaceStatus},
}

// unreachable is what tables say in place of the phase.
const unreachable = "Unreachable"

var workspaceStatus = resource.Subresource[workspace]{
	Keep:  func(w, old workspace) { w.Spec = old.Spec },
	Reset: fieldpath.NewSet(fieldpath.MakePathOrDie("spec")),
}

func validateWorkspace(w workspace) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateType(w.Spec.Type, spec.Child("type"))
	if name := logicalcluster.Name(w.Spec.Cluster); name != "" && (!clusters.IsValidName(name) || name == clusters.Root || strings.Contains(w.Spec.Cluster, ":")) {
		errs = append(errs, field.Invalid(spec.Child("cluster"), w.Spec.Cluster, "must be the name of a workspace's logical cluster: leave it out, it is chosen for you"))
	}
	if adopt, ok := w.Annotations[clusters.AdoptAnnotation]; ok && !adoption.MatchString(adopt) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations").Key(clusters.AdoptAnnotation), adopt, "must be <shard>/<logical cluster>: regent shard orphans adopt writes it"))
	}
	if creator := w.Annotations[creatorKey]; creator != "" {
		if _, err := clusters.CreatorOf(creator); err != nil {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations").Key(creatorKey), creator, err.Error()))
		}
	}
	if w.Spec.URL != "" {
		if u, err := url.Parse(w.Spec.URL); err != nil || !u.IsAbs() || u.Host == "" {
			errs = append(errs, field.Invalid(spec.Child("URL"), w.Spec.URL, "must be an absolute URL"))
		}
	}
	if l := w.Spec.Location; l != nil && l.Selector != nil {
		errs = append(errs, metav1validation.ValidateLabelSelector(l.Selector, metav1validation.LabelSelectorValidationOptions{}, spec.Child("location", "selector"))...)
	}
	if m := w.Spec.Mount; m != nil {
		ref := spec.Child("mount", "ref")
		errs = append(errs, kcpcore.Require(m.Reference.APIVersion, ref.Child("apiVersion"))...)
		errs = append(errs, kcpcore.Require(m.Reference.Kind, ref.Child("kind"))...)
		errs = append(errs, kcpcore.Require(m.Reference.Name, ref.Child("name"))...)
	}
	status := field.NewPath("status")
	errs = append(errs, kcpcore.ValidatePhase(w.Status.Phase, status.Child("phase"))...)
	errs = append(errs, kcpcore.ValidateConditions(w.Status.Conditions, status.Child("conditions"))...)
	errs = append(errs, kcpcore.ValidateNames(w.Status.Initializers, status.Child("initializers"))...)
	return append(errs, kcpcore.ValidateNames(w.Status.Terminators, status.Child("terminators"))...)
}

func validateType(t *tenancyv1alpha1.WorkspaceTypeReference, path *field.Path) field.ErrorList {
	if t == nil {
		return nil
	}
	errs := kcpcore.Require(string(t.Name), path.Child("name"))
	if t.Name != "" && !typeName.MatchString(string(t.Name)) {
		errs = append(errs, field.Invalid(path.Child("name"), t.Name, "must match "+typeName.String()))
	}
	if t.Path != "" && !typePath.MatchString(t.Path) {
		errs = append(errs, field.Invalid(path.Child("path"), t.Path, "must match "+typePath.String()))
	}
	return errs
}

// refuseNew refuses what this server does not do, unless the old state has it, too: what is stored can be written
// again. old is nil for a new Workspace.
func refuseNew(w, old workspace) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	_, adopts := w.Annotations[clusters.AdoptAnnotation] // with the type of before
	if t := w.Spec.Type; (old == nil || old.Spec.Type == nil) && !adopts && t != nil && !isOfKCP(t) {
		errs = append(errs, field.Invalid(spec.Child("type"), t.String(), "this server has no workspace types: leave it out, or give root:universal"))
	}
	if w.Spec.Mount != nil && (old == nil || old.Spec.Mount == nil) {
		errs = append(errs, field.Forbidden(spec.Child("mount"), "this server mounts nothing: leave it out, and the workspace gets a logical cluster of its own"))
	}
	return errs
}

// isOfKCP reports whether a type is one that every kcp has. Without a path kcp looks for it above the workspace, too.
func isOfKCP(t *tenancyv1alpha1.WorkspaceTypeReference) bool {
	return (t.Path == "" || t.Path == defaultTypePath) && slices.Contains(typesOfKCP, t.Name)
}

// warn tells of what has no effect.
func warn(w, old workspace) (warnings []string) {
	if old == nil && w.Spec.Type != nil && w.Spec.Type.Name != defaultType {
		warnings = append(warnings, fmt.Sprintf("spec.type: this server has no workspace types; %s is kept and shown, and changes nothing", w.Spec.Type))
	}
	if old != nil && old.Spec.Cluster != "" && !equality.Semantic.DeepEqual(w.Spec.Location, old.Spec.Location) {
		warnings = append(warnings, "spec.location: the workspace has its shard, and stays there")
	}
	return warnings
}

// validateWorkspaceUpdate refuses changes of a workspace's logical cluster, URL, type and mount: they are permanent
// once set.
func validateWorkspaceUpdate(w, old workspace) field.ErrorList {
	errs := refuseNew(w, old)
	spec := field.NewPath("spec")
	switch {
	case old.Spec.Cluster != "" && w.Spec.Cluster == "":
		errs = append(errs, field.Invalid(spec, "", "cluster cannot be unset"))
	case old.Spec.Cluster != "" && w.Spec.Cluster != old.Spec.Cluster:
		errs = append(errs, field.Invalid(spec.Child("cluster"), w.Spec.Cluster, "cluster is immutable"))
	}
	switch {
	case old.Spec.URL != "" && w.Spec.URL == "":
		errs = append(errs, field.Invalid(spec, "", "URL cannot be unset"))
	case old.Spec.URL != "" && w.Spec.URL != old.Spec.URL:
		errs = append(errs, field.Invalid(spec.Child("URL"), w.Spec.URL, "URL is immutable"))
	}
	if before, now := old.Spec.Type, w.Spec.Type; before != nil && now != nil {
		if before.Name != now.Name {
			errs = append(errs, field.Invalid(spec.Child("type"), now.Name, "name is immutable"))
		}
		if before.Path != now.Path {
			errs = append(errs, field.Invalid(spec.Child("type"), now.Path, "path is immutable"))
		}
	}
	if old.Spec.Mount != nil && !equality.Semantic.DeepEqual(w.Spec.Mount, old.Spec.Mount) {
		errs = append(errs, field.Invalid(spec.Child("mount"), w.Spec.Mount, "mount is immutable"))
	}
	return errs
}
