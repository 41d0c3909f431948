package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/regent-project/regent/pkg/clusters"
)

// TenancyProtection allows only the shard's leader to write the fields of Workspaces and LogicalClusters on which other
// clusters depend: a workspace's cluster, path and URL, a cluster's owner, and the phases. Whoever could write these in
// one cluster could take over or delete another one. Members of system:masters are refused, too.
//
// Only changes are judged, in all subresources: an object may be applied or replaced as it is.
type TenancyProtection struct {
	// Leader is the name of the user of the leader's controllers.
	Leader string
}

// Handles implements admission.Interface.
func (p *TenancyProtection) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update
}

// Validate implements admission.ValidationInterface.
func (p *TenancyProtection) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetUserInfo() != nil && a.GetUserInfo().GetName() == p.Leader {
		return nil
	}
	switch a.GetResource().GroupResource() {
	case tenancyv1alpha1.Resource("workspaces"):
		return validate(a, asCreated(a), ofWorkspaces, clusters.WorkspaceFinalizer)
	case corev1alpha1.Resource("logicalclusters"):
		if a.GetOperation() == admission.Create {
			return admission.NewForbidden(a, errors.New("only the shard's controllers create LogicalClusters: create a Workspace, and they create one for it"))
		}
		return validate(a, nil, ofLogicalClusters, clusters.ContentFinalizer)
	case corev1alpha1.Resource("shards"):
		return validateShard(ctx, a)
	}
	return nil
}

// asCreated returns the Workspace that a user may create: nothing is set, except that the user may be named as its
// creator.
func asCreated(a admission.Attributes) *tenancyv1alpha1.Workspace {
	out := &tenancyv1alpha1.Workspace{Status: tenancyv1alpha1.WorkspaceStatus{Phase: corev1alpha1.LogicalClusterPhaseScheduling}}
	who := recorded(a.GetUserInfo())
	if ws, ok := a.GetObject().(*tenancyv1alpha1.Workspace); ok && who != "" && ws.Annotations[tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey] == who {
		out.Annotations = map[string]string{tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey: who}
	}
	return out
}

// validateShard allows users to say who is a member in cluster root. What else they create would have no effect, and
// copies are the leader's.
func validateShard(ctx context.Context, a admission.Attributes) error {
	if cluster, _ := clusters.From(ctx); cluster == clusters.Root || isUnchanged(a) {
		return nil
	}
	return admission.NewForbidden(a, errors.New("Shard objects are in cluster root of the root shard, and only the shards' controllers copy them elsewhere: change the one there"))
}

// isUnchanged reports whether an update leaves an object as it is. Whoever rotates an encryption key has all objects
// written anew in this way.
func isUnchanged(a admission.Attributes) bool {
	if a.GetOperation() != admission.Update || a.GetObject() == nil || a.GetOldObject() == nil {
		return false
	}
	return equality.Semantic.DeepEqual(withoutFields(a.GetObject()), withoutFields(a.GetOldObject()))
}

// withoutFields returns a copy of an object that does not say who has set which field.
func withoutFields(obj runtime.Object) runtime.Object {
	obj = obj.DeepCopyObject()
	if described, err := meta.Accessor(obj); err == nil {
		described.SetManagedFields(nil)
	}
	return obj
}

// protected is a field that only the leader may write, and with mastersToo also members of system:masters.
type protected[T metav1.Object] struct {
	path       *field.Path
	value      func(T) string
	mastersToo bool
}

var ofWorkspaces = []protected[*tenancyv1alpha1.Workspace]{
	{path: field.NewPath("spec", "cluster"), value: func(w *tenancyv1alpha1.Workspace) string { return w.Spec.Cluster }},
	{path: field.NewPath("spec", "URL"), value: func(w *tenancyv1alpha1.Workspace) string { return w.Spec.URL }},
	{path: field.NewPath("status", "phase"), value: func(w *tenancyv1alpha1.Workspace) string { return string(w.Status.Phase) }},
	// Whom this annotation names becomes the administrator of the new cluster (see Creator).
	annotation[*tenancyv1alpha1.Workspace](tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey, true),
	label[*tenancyv1alpha1.Workspace](clusters.ShardLabel),
	// Whoever says where a cluster is says who serves it.
	annotation[*tenancyv1alpha1.Workspace](clusters.ReturnAnnotation, true),
	// Whoever adopts a cluster gets everything that is in it.
	annotation[*tenancyv1alpha1.Workspace](clusters.AdoptAnnotation, true),
}

// Only the uid of a LogicalCluster's owner is listed, because nobody can change anything else of the owner (see package
// kcpcore).
var ofLogicalClusters = []protected[*corev1alpha1.LogicalCluster]{
	{path: field.NewPath("spec", "owner", "uid"), value: func(l *corev1alpha1.LogicalCluster) string {
		if l.Spec.Owner == nil {
			return ""
		}
		return string(l.Spec.Owner.UID)
	}},
	{path: field.NewPath("status", "phase"), value: func(l *corev1alpha1.LogicalCluster) string { return string(l.Status.Phase) }},
	{path: field.NewPath("status", "URL"), value: func(l *corev1alpha1.LogicalCluster) string { return l.Status.URL }},
	// The paths and URLs of all workspaces in the cluster begin with this path.
	annotation[*corev1alpha1.LogicalCluster](core.LogicalClusterPathAnnotationKey, false),
	annotation[*corev1alpha1.LogicalCluster](tenancyv1alpha1.LogicalClusterTypeAnnotationKey, false),
	annotation[*corev1alpha1.LogicalCluster](tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey, false),
	// The shard keeps in these what it knows of the logical cluster: where it has moved, whose tokens it accepts.
	{path: field.NewPath("metadata", "annotations").Key(clusters.InternalPrefix + "*"), value: internalOf[*corev1alpha1.LogicalCluster]},
	label[*corev1alpha1.LogicalCluster](clusters.OwnerShardLabel),
	annotation[*corev1alpha1.LogicalCluster](clusters.MaxObjectsAnnotation, true),
	annotation[*corev1alpha1.LogicalCluster](clusters.MaxBytesAnnotation, true),
	annotation[*corev1alpha1.LogicalCluster](clusters.MaxWorkspacesAnnotation, true),
}

// internalOf returns all annotations that only the shard itself writes, as one text.
func internalOf[T metav1.Object](obj T) string {
	var out strings.Builder
	annotations := obj.GetAnnotations()
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if strings.HasPrefix(key, clusters.InternalPrefix) {
			fmt.Fprintf(&out, "%q=%q,", key, annotations[key])
		}
	}
	return out.String()
}

func annotation[T metav1.Object](key string, mastersToo bool) protected[T] {
	return protected[T]{
		path:       field.NewPath("metadata", "annotations").Key(key),
		value:      func(obj T) string { return obj.GetAnnotations()[key] },
		mastersToo: mastersToo,
	}
}

func label[T metav1.Object](key string) protected[T] {
	return protected[T]{path: field.NewPath("metadata", "labels").Key(key), value: func(obj T) string { return obj.GetLabels()[key] }}
}

// validate compares an updated object with its old state, and a new one with created, an object in which nothing is
// set.
func validate[T metav1.Object](a admission.Attributes, created T, fields []protected[T], finalizer string) error {
	obj, ok := a.GetObject().(T)
	old, was := created, true
	if a.GetOperation() == admission.Update {
		old, was = a.GetOldObject().(T)
	}
	if !ok || !was {
		return apierrors.NewInternalError(fmt.Errorf("cannot compare a %T with a %T", a.GetObject(), a.GetOldObject()))
	}
	var errs field.ErrorList
	for _, p := range fields {
		if p.value(obj) != p.value(old) && !(p.mastersToo && isMaster(a.GetUserInfo())) {
			errs = append(errs, p.refusal())
		}
	}
	if slices.Contains(old.GetFinalizers(), finalizer) && !slices.Contains(obj.GetFinalizers(), finalizer) {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "finalizers"), fmt.Sprintf(
			"only the shard's controllers remove %s: they do so when the object is deleted and its logical cluster is empty; until then status.conditions tells what they wait for", finalizer)))
	}
	if len(errs) > 0 {
		return admission.NewForbidden(a, errs.ToAggregate())
	}
	return nil
}

func (p protected[T]) refusal() *field.Error {
	who := "only the shard's controllers write it"
	if p.mastersToo {
		who = "only members of " + user.SystemPrivilegedGroup + " write it"
	}
	return field.Forbidden(p.path, who+": leave it out of a new object, and as it is in one that exists")
}

func isMaster(who user.Info) bool {
	return who != nil && slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup)
}

var _ admission.ValidationInterface = (*TenancyProtection)(nil)
