package moves

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/storage"
)

// What a logical cluster has bound is served by the copies of schemas in clusters.BoundSchemas, of which its bindings
// know the uids. So the copies come with the bindings, and are there before the logical cluster is. The other shard may
// lie about uids: a copy that comes is known here by clusters.ForeignUID, and stands for no other one.

// Bindings reads and keeps what logical clusters have bound: see clusters.BoundSchemas. Errors are those of API
// requests.
type Bindings interface {
	// Bindings reads those of a logical cluster as they are stored, and Schema the copy of a schema, which never
	// changes, and may be gone: as this process has heard of it, and as it is stored if it has not.
	Bindings(ctx context.Context, cluster logicalcluster.Name) ([]*apisv1alpha2.APIBinding, error)
	Schema(ctx context.Context, name string) (*apisv1alpha1.APIResourceSchema, error)
	// Keep makes sure that a copy stays that a stored binding names.
	Keep(ctx context.Context, copied *apisv1alpha1.APIResourceSchema) error
}

// BoundSchema returns a copy that a logical cluster uses.
func (m *Moves) BoundSchema(ctx context.Context, cluster logicalcluster.Name, name string) (*apisv1alpha1.APIResourceSchema, error) {
	all, err := m.BoundSchemas(ctx, cluster)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(all, name) {
		return nil, apierrors.NewNotFound(apisv1alpha1.Resource("apiresourceschemas"), name)
	}
	return m.Bindings.Schema(ctx, name)
}

// BoundSchemas returns the names of the copies that the bindings of a logical cluster use, in order.
func (m *Moves) BoundSchemas(ctx context.Context, cluster logicalcluster.Name) (names []string, err error) {
	all, err := m.Bindings.Bindings(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("read what logical cluster %s has bound: %w", cluster, err)
	}
	for _, b := range all {
		for n := range b.Status.BoundResources {
			names = append(names, clusters.BoundSchemaKey(&b.Status.BoundResources[n]).Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// TakeSchema keeps a copy here that a logical cluster that comes uses, which the other shard knows by a name.
func (m *Moves) TakeSchema(ctx context.Context, cluster logicalcluster.Name, name string, s *apisv1alpha1.APIResourceSchema) error {
	lc, _, err := m.comes(ctx, cluster)
	if err != nil {
		return err
	}
	uid, names, ok := strings.Cut(strings.TrimPrefix(name, "u"), ".")
	if !ok || uid == "" || names != s.Spec.Names.Plural+"."+s.Spec.Group {
		return refuse("%q is not the name of a copy of schema %s.%s", name, s.Spec.Names.Plural, s.Spec.Group)
	}
	copied := controllers.SchemaCopyOf(s, foreignUID(lc, uid))
	for _, of := range []string{apisv1alpha1.AnnotationSchemaClusterKey, apisv1alpha1.AnnotationSchemaNameKey} {
		copied.Annotations[of] = s.Annotations[of]
	}
	err = m.Bindings.Keep(ctx, copied)
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
		return refuse("this shard cannot use a schema that it has bound: %v", err)
	}
	return err
}

// foreignUID returns the uid by which this shard knows a copy of the shard that a logical cluster comes from.
func foreignUID(lc *corev1alpha1.LogicalCluster, uid string) string {
	return string(clusters.ForeignUID(clusters.ComingFrom(lc).Shard, types.UID(uid)))
}

// rebind returns an APIBinding with the shard of its export, as seen from this one, and the uids that the copies have
// here.
func (m *Moves) rebind(lc *corev1alpha1.LogicalCluster, text []byte) ([]byte, error) {
	b := &apisv1alpha2.APIBinding{}
	if err := json.Unmarshal(text, b); err != nil {
		return nil, fmt.Errorf("%w: %w", storage.ErrUnstorable, err)
	}
	at := controllers.ExportShardOf(b)
	if at == "" {
		at = clusters.ComingFrom(lc).Shard
	}
	export := controllers.ExportOf(b).Cluster
	if export == logicalcluster.From(lc) {
		at = m.Shard // it is its own
	}
	delete(b.Annotations, clusters.ExportShardAnnotation)
	if at != m.Shard && export != "" {
		b.Annotations[clusters.ExportShardAnnotation] = at
	}
	for n := range b.Status.BoundResources {
		s := &b.Status.BoundResources[n].Schema
		s.UID = foreignUID(lc, s.UID)
	}
	return json.Marshal(b)
}

// readsAtOnce is how many schemas are read at once that this process has not heard of yet: writes wait for it.
const readsAtOnce = 16

// hasSchemas returns an error if a copy is missing that a logical cluster uses that comes. A copy that Keep has looked
// at since its binding was stored is there: see controllers.UnusedAnnotation.
func (m *Moves) hasSchemas(ctx context.Context, cluster logicalcluster.Name) error {
	all, err := m.BoundSchemas(ctx, cluster)
	if err != nil {
		return err
	}
	reading, ctx := errgroup.WithContext(ctx)
	reading.SetLimit(readsAtOnce)
	for _, name := range all {
		reading.Go(func() error {
			_, err := m.Bindings.Schema(ctx, name)
			if apierrors.IsNotFound(err) {
				return refuse("schema %s, which it has bound, has not come: if the other shard does not have it either, delete the APIBinding that names it, and bind anew", name)
			}
			if err != nil {
				return fmt.Errorf("read schema %s: %w", name, err)
			}
			return nil
		})
	}
	return reading.Wait()
}
