package exports

import (
	"cmp"
	"context"
	"slices"

	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/apis/admission"
)

// Reader reads from the store, in the logical cluster of the context. Its errors are those of API requests. For exports
// no cache takes its place: two replicas that are behind by different changes would be followed to and fro.
type Reader interface {
	Export(ctx context.Context, name string) (*apisv1alpha2.APIExport, error)
	Schema(ctx context.Context, name string) (*apisv1alpha1.APIResourceSchema, error)
}

// Answers answers other shards about exports of this one.
type Answers struct {
	Reader Reader
	// Authorizer decides in the logical cluster of the context, without asking whether the user may enter it.
	Authorizer authorizer.Authorizer
	// Informers tell what has changed.
	Informers controllers.Informers
	// Process names this process, and none before or after it.
	Process string
}

// Answer answers a question. The error says that this replica cannot know now.
func (a Answers) Answer(ctx context.Context, q Question) (Answer, error) {
	if q.Changed {
		return a.changes(), nil
	}
	ctx = clusters.WithOnly(ctx, q.Cluster)
	if q.User != nil {
		decision, _, err := a.Authorizer.Authorize(ctx, admission.AttributesOfBinding(userOf(q.User), q.Name))
		may := decision == authorizer.DecisionAllow
		if may {
			err = nil
		}
		return Answer{May: may}, err
	}
	export, err := orNil(a.Reader.Export(ctx, q.Name))
	if export == nil || err != nil {
		return Answer{}, err
	}
	if q.Schema != "" {
		return a.schema(ctx, export, q.Schema)
	}
	out := Answer{Export: &apisv1alpha2.APIExport{ObjectMeta: metadataOf(export), Spec: export.Spec, Status: export.Status}, Schemas: map[string]types.UID{}}
	for _, r := range export.Spec.Resources {
		uid, err := a.uid(ctx, q.Cluster, r.Schema)
		if err != nil {
			return Answer{}, err
		}
		if uid != "" {
			out.Schemas[r.Schema] = uid
		}
	}
	return out, nil
}

// uid returns the uid of a schema, or nothing if there is no such schema. The cache knows nearly all, and is believed
// since schemas never change: whoever asks for one that was made anew is told that it is another one.
func (a Answers) uid(ctx context.Context, cluster logicalcluster.Name, name string) (types.UID, error) {
	if s, ok := a.Informers.APIResourceSchemas.Get(clusters.Key{Cluster: cluster, Name: name}); ok {
		return s.UID, nil
	}
	s, err := orNil(a.Reader.Schema(ctx, name))
	if s == nil || err != nil {
		return "", err
	}
	return s.UID, nil
}

// schema answers with a schema if the export names it.
func (a Answers) schema(ctx context.Context, export *apisv1alpha2.APIExport, name string) (Answer, error) {
	if !slices.ContainsFunc(export.Spec.Resources, func(r apisv1alpha2.ResourceSchema) bool { return r.Schema == name }) {
		return Answer{}, nil
	}
	s, err := orNil(a.Reader.Schema(ctx, name))
	if s == nil || err != nil {
		return Answer{}, err
	}
	return Answer{Schema: &apisv1alpha1.APIResourceSchema{ObjectMeta: metadataOf(s), Spec: s.Spec}}, nil
}

// maxLooked is at how many resources of exports is looked for one answer about changes: a tenant may have many, and
// change their schemas all the time.
const maxLooked = 20000

// changes answers with what the informers have heard of in the last minute.
func (a Answers) changes() Answer {
	versions := map[clusters.Key]string{} // by export
	exports, schemas := 0, 0
	a.Informers.APIExports.Recent(clusters.Range{}, func(old, now *apisv1alpha2.APIExport) {
		exports++
		versions[clusters.KeyOf(cmp.Or(now, old))] = versionOf(cmp.Or(now, old), now == nil)
	})
	changed := map[logicalcluster.Name]map[string]string{} // versions of schemas, by name
	a.Informers.APIResourceSchemas.Recent(clusters.Range{}, func(old, now *apisv1alpha1.APIResourceSchema) {
		schemas++
		of := clusters.KeyOf(cmp.Or(now, old))
		if changed[of.Cluster] == nil {
			changed[of.Cluster] = map[string]string{}
		}
		changed[of.Cluster][of.Name] = versionOf(cmp.Or(now, old), now == nil)
	})
	looked := 0
	for cluster, names := range changed {
		for _, e := range a.Informers.APIExports.List(cluster) {
			if looked += len(e.Spec.Resources); looked > maxLooked {
				break
			}
			for _, r := range e.Spec.Resources {
				if version := names[r.Schema]; version != "" {
					versions[clusters.KeyOf(e)] += " " + version
				}
			}
		}
	}
	out := Answer{By: a.Process, Missed: max(exports, schemas) >= clusters.MaxRecent || looked > maxLooked}
	for of, version := range versions {
		out.Changes = append(out.Changes, Change{of.Cluster, of.Name, version})
	}
	return out
}

func versionOf(obj metav1.Object, deleted bool) string {
	if deleted {
		return obj.GetResourceVersion() + "-deleted"
	}
	return obj.GetResourceVersion()
}

// metadataOf returns what other shards need to know of the metadata of an object. Annotations may approve of its group.
func metadataOf(obj metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: obj.GetName(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(), Annotations: obj.GetAnnotations()}
}

// orNil returns nil instead of an object that does not exist.
func orNil[T any](obj *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // it is what is known of it
	}
	return obj, err
}
