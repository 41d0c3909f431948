package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/regent-project/regent/pkg/clusters"
)

// Bindings decides who may bind an export: whoever has the verb bind on it in the export's logical cluster. Nobody
// needs to be let into that cluster otherwise. It resolves the path to the export once, when the binding is made.
//
// What a binding has bound only the shard's leader writes: other bindings' schemas could be read by whoever could write
// that.
type Bindings struct {
	// Leader is the name of the user of the leader's controllers.
	Leader string
	// Find returns where a path leads.
	Find func(ctx context.Context, path logicalcluster.Path) (Place, error)
	// Allowed decides about a right in another logical cluster, without asking whether the user may enter it.
	Allowed func(ctx context.Context, in Place, attributes authorizer.AttributesRecord) (bool, error)
}

// Place is a logical cluster, and the shard that has it. The shard is empty if it is this one.
type Place struct {
	Shard   string
	Cluster logicalcluster.Name
}

// placeOf returns where admission has found the export of a binding.
func placeOf(b *apisv1alpha2.APIBinding) Place {
	return Place{b.Annotations[clusters.ExportShardAnnotation], logicalcluster.Name(b.Annotations[clusters.ExportClusterAnnotation])}
}

// note notes where the export of a binding is.
func (p Place) note(b *apisv1alpha2.APIBinding) {
	if b.Annotations == nil {
		b.Annotations = map[string]string{}
	}
	b.Annotations[clusters.ExportClusterAnnotation] = p.Cluster.String()
	if p.Shard != "" {
		b.Annotations[clusters.ExportShardAnnotation] = p.Shard
	}
}

// Handles implements admission.Interface.
func (p *Bindings) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update
}

// Admit implements admission.MutationInterface: it notes where the export is. Whatever a client says of that does not
// count. Only the leader changes it, when the export has moved.
func (p *Bindings) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	b, ok := a.GetObject().(*apisv1alpha2.APIBinding)
	if !ok {
		return nil
	}
	if a.GetOperation() == admission.Update {
		return p.keep(a, b)
	}
	if a.GetSubresource() != "" || b.Spec.Reference.Export == nil {
		return nil
	}
	delete(b.Annotations, clusters.ExportClusterAnnotation)
	delete(b.Annotations, clusters.ExportShardAnnotation)
	cluster, ok := clusters.From(ctx)
	if !ok {
		return apierrors.NewInternalError(clusters.ErrNoCluster)
	}
	at := Place{Cluster: cluster}
	if path := b.Spec.Reference.Export.Path; path != "" {
		if !logicalcluster.NewPath(path).IsValid() {
			return nil // validation says so
		}
		var err error
		if at, err = p.Find(ctx, logicalcluster.NewPath(path)); apierrors.IsServiceUnavailable(err) {
			return err
		} else if err != nil {
			return p.refuse(a, b, err)
		}
	}
	at.note(b)
	return nil
}

// keep keeps where the export of a binding is. Clients that replace a binding leave it out.
func (p *Bindings) keep(a admission.Attributes, b *apisv1alpha2.APIBinding) error {
	old, ok := a.GetOldObject().(*apisv1alpha2.APIBinding)
	if !ok {
		return incomparable(a)
	}
	if !p.isLeader(a) {
		delete(b.Annotations, clusters.ExportClusterAnnotation)
		delete(b.Annotations, clusters.ExportShardAnnotation)
		if at := placeOf(old); at != (Place{}) {
			at.note(b)
		}
	}
	return nil
}

func (p *Bindings) isLeader(a admission.Attributes) bool {
	return a.GetUserInfo() != nil && a.GetUserInfo().GetName() == p.Leader
}

func incomparable(a admission.Attributes) error {
	return apierrors.NewInternalError(fmt.Errorf("cannot compare a binding with a %T", a.GetOldObject()))
}

// Validate implements admission.ValidationInterface.
func (p *Bindings) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	b, ok := a.GetObject().(*apisv1alpha2.APIBinding)
	if !ok || p.isLeader(a) {
		return nil
	}
	if a.GetOperation() == admission.Create {
		return p.mayBind(ctx, a, b)
	}
	old, ok := a.GetOldObject().(*apisv1alpha2.APIBinding)
	switch {
	case !ok:
		return incomparable(a)
	case !equality.Semantic.DeepEqual(b.Status, old.Status):
		return admission.NewForbidden(a, field.Forbidden(field.NewPath("status"), "only the shard's controllers write it"))
	case slices.Contains(old.Finalizers, clusters.BindingFinalizer) && !slices.Contains(b.Finalizers, clusters.BindingFinalizer) && !isMaster(a.GetUserInfo()):
		return admission.NewForbidden(a, field.Forbidden(field.NewPath("metadata", "finalizers"),
			fmt.Sprintf("only the shard's controllers remove %s: they do so when the objects of what is bound are deleted", clusters.BindingFinalizer)))
	}
	return nil
}

func (p *Bindings) mayBind(ctx context.Context, a admission.Attributes, b *apisv1alpha2.APIBinding) error {
	at := placeOf(b)
	if at.Cluster == "" || b.Spec.Reference.Export == nil {
		return p.refuse(a, b, errors.New("its export is not known"))
	}
	allowed, err := p.Allowed(ctx, at, AttributesOfBinding(a.GetUserInfo(), b.Spec.Reference.Export.Name))
	if apierrors.IsServiceUnavailable(err) {
		return err
	}
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("cannot tell whether bind is allowed: %w", err))
	}
	if !allowed {
		return p.refuse(a, b, nil)
	}
	return nil
}

// AttributesOfBinding returns what a user must be allowed who binds an export, in the logical cluster of the export.
func AttributesOfBinding(who user.Info, export string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		User: who, Verb: "bind", APIGroup: apisv1alpha2.SchemeGroupVersion.Group, APIVersion: apisv1alpha2.SchemeGroupVersion.Version,
		Resource: "apiexports", Name: export, ResourceRequest: true,
	}
}

// refuse says the same to everybody whether there is no such cluster, or only the right is missing.
// Members of system:masters are told why.
func (p *Bindings) refuse(a admission.Attributes, b *apisv1alpha2.APIBinding, why error) error {
	name := b.Spec.Reference.Export.Name
	where := "this logical cluster"
	if path := b.Spec.Reference.Export.Path; path != "" {
		where = path
	}
	err := fmt.Errorf("no permission to bind to export %q of %s: you need the verb bind on apiexports/%s there", name, where, name)
	if why != nil && isMaster(a.GetUserInfo()) {
		err = fmt.Errorf("%w: %w", err, why)
	}
	return admission.NewForbidden(a, err)
}

var (
	_ admission.MutationInterface   = (*Bindings)(nil)
	_ admission.ValidationInterface = (*Bindings)(nil)
)
