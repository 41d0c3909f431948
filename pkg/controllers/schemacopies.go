package controllers

import (
	"context"
	"fmt"

	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
)

// UnusedAnnotation is on the copy of a schema that is about to be deleted, because no binding was seen to use it.
// Whoever names a copy must look at it afterwards, with KeepSchemaCopy.
const UnusedAnnotation = "internal.apis.kcp.io/unused"

// SchemaCopyOf returns the copy of a schema, of which bindings know the uid. It is in clusters.BoundSchemas. It shares
// its spec with the schema.
func SchemaCopyOf(s *apisv1alpha1.APIResourceSchema, uid string) *apisv1alpha1.APIResourceSchema {
	of := clusters.BoundSchemaKeyOf(uid, s.Spec.Names.Plural, s.Spec.Group)
	out := &apisv1alpha1.APIResourceSchema{
		ObjectMeta: metav1.ObjectMeta{Name: of.Name, Annotations: map[string]string{
			apisv1alpha1.AnnotationSchemaClusterKey: clusters.KeyOf(s).Cluster.String(), apisv1alpha1.AnnotationSchemaNameKey: s.Name,
		}},
		Spec: s.Spec,
	}
	if approval, ok := s.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation]; ok {
		out.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation] = approval
	}
	return out
}

// MakeSchemaCopy makes a copy. It may be there already, if another logical cluster has bound the same schema.
func (c Clients) MakeSchemaCopy(ctx context.Context, copied *apisv1alpha1.APIResourceSchema, opts metav1.CreateOptions) error {
	_, err := c.Schemas.Create(clusters.With(ctx, clusters.BoundSchemas), copied, opts)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("keep schema %s: %w", copied.Annotations[apisv1alpha1.AnnotationSchemaNameKey], err)
	}
	return nil
}

// KeepSchemaCopy makes sure that a copy stays that a stored binding names: it makes it, or takes UnusedAnnotation away.
func (c Clients) KeepSchemaCopy(ctx context.Context, copied *apisv1alpha1.APIResourceSchema, manager string) error {
	at := clusters.With(ctx, clusters.BoundSchemas)
	live, err := c.Schemas.Get(at, copied.Name, metav1.GetOptions{})
	if err == nil && live.Annotations[UnusedAnnotation] != "" {
		out := live.DeepCopy()
		delete(out.Annotations, UnusedAnnotation)
		_, err = c.Schemas.Update(at, out, metav1.UpdateOptions{FieldManager: manager})
	}
	if apierrors.IsNotFound(err) {
		return c.MakeSchemaCopy(ctx, copied, metav1.CreateOptions{FieldManager: manager})
	}
	if err != nil {
		return fmt.Errorf("keep the copy of schema %s: %w", copied.Annotations[apisv1alpha1.AnnotationSchemaNameKey], err)
	}
	return nil
}
