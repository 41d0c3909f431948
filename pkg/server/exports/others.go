package exports

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/fetch"
	"github.com/regent-project/regent/pkg/server/status"
)

// Peers are the other shards of the installation.
type Peers interface {
	// Peers returns those that are members now, and whether each is heard.
	Peers() map[string]bool
	// Ask sends GET to one. Each of its replicas may take so long, and answer with so many bytes.
	Ask(ctx context.Context, shard, path string, each time.Duration, limit int64) ([]byte, error)
}

const (
	// patience is how long a question may take in all, each how long one replica of the other shard may take.
	patience, each = 5 * time.Second, 2 * time.Second
	// maxAnswer is how many bytes another shard may answer with. An object has 1.5 MiB at most where it is stored.
	maxAnswer = 4 << 20
	// maxResources is how many resources an export of another shard may have: so many are read in one turn.
	maxResources = 250
)

// Others asks other shards about their exports. It remembers nothing. Make it with NewOthers. All methods may be called
// at any time on any goroutine.
type Others struct {
	peers  Peers
	places fetch.Places // there are few shards, and their names are never used again
}

// NewOthers returns an Others.
func NewOthers(peers Peers) *Others { return &Others{peers: peers} }

// Authorizer returns an authorizer that asks a shard who may bind exports in the logical cluster of the context. It
// decides about nothing else.
func (o *Others) Authorizer(shard string) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		cluster, ok := clusters.From(ctx)
		if !ok || a.GetUser() == nil || a.GetVerb() != "bind" || a.GetResource() != "apiexports" || !isName(a.GetName()) {
			return authorizer.DecisionNoOpinion, "", nil
		}
		says, err := o.ask(ctx, shard, Question{Cluster: cluster, Name: a.GetName(), User: infoOf(a.GetUser())})
		if err == nil && says.May {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", err
	})
}

// Offer implements controllers.OfferReader.
func (o *Others) Offer(ctx context.Context, shard string, export clusters.Key, was *controllers.Offer) (*controllers.Offer, error) {
	says, err := o.ask(ctx, shard, Question{Cluster: export.Cluster, Name: export.Name})
	if err != nil {
		return nil, err
	}
	if says.Export == nil {
		return nil, apierrors.NewNotFound(apisv1alpha2.Resource("apiexports"), export.Name)
	}
	if n := len(says.Export.Spec.Resources); n > maxResources {
		return nil, fmt.Errorf("it has %d resources, and %d are followed at most: ask its owner to offer several exports", n, maxResources)
	}
	out := &controllers.Offer{Export: says.Export, Schemas: map[string]*apisv1alpha1.APIResourceSchema{}}
	out.Export.ObjectMeta = imported(shard, export.Cluster, export.Name, says.Export)
	for _, r := range says.Export.Spec.Resources {
		uid, there := says.Schemas[r.Schema]
		if !there {
			continue
		}
		if was != nil && was.Schemas[r.Schema] != nil && was.Schemas[r.Schema].UID == clusters.ForeignUID(shard, uid) {
			out.Schemas[r.Schema] = was.Schemas[r.Schema]
			continue
		}
		if out.Schemas[r.Schema], err = o.schema(ctx, shard, export, r.Schema, uid); err != nil {
			return nil, fmt.Errorf("schema %s: %w", r.Schema, err)
		}
	}
	return out, nil
}

// Changes implements controllers.OfferReader.
func (o *Others) Changes(ctx context.Context, shard string) (controllers.Changes, error) {
	says, err := o.ask(ctx, shard, Question{Changed: true})
	out := controllers.Changes{Exports: map[clusters.Key]string{}, All: !says.Missed, By: says.By}
	for _, c := range says.Changes {
		out.Exports[clusters.Key{Cluster: c.Cluster, Name: c.Name}] = c.Version
	}
	return out, err
}

func (o *Others) schema(ctx context.Context, shard string, export clusters.Key, name string, uid types.UID) (*apisv1alpha1.APIResourceSchema, error) {
	says, err := o.ask(ctx, shard, Question{Cluster: export.Cluster, Name: export.Name, Schema: name})
	if err != nil {
		return nil, err
	}
	if says.Schema == nil || says.Schema.UID != uid {
		return nil, errors.New("it has changed meanwhile")
	}
	return &apisv1alpha1.APIResourceSchema{ObjectMeta: imported(shard, export.Cluster, name, says.Schema), Spec: says.Schema.Spec}, nil
}

// imported returns the metadata that an object of another shard has here. The shard does not say where it is, or what
// it is called: that was asked for.
func imported(shard string, cluster logicalcluster.Name, name string, obj metav1.Object) metav1.ObjectMeta {
	out := metav1.ObjectMeta{Name: name, UID: clusters.ForeignUID(shard, obj.GetUID()), ResourceVersion: obj.GetResourceVersion(), Annotations: map[string]string{}}
	for key, value := range obj.GetAnnotations() {
		out.Annotations[key] = value
	}
	out.Annotations[logicalcluster.AnnotationKey] = cluster.String()
	return out
}

// ask asks a shard, if it is heard: one that is down would only cost time.
func (o *Others) ask(ctx context.Context, shard string, q Question) (says Answer, err error) {
	if !o.peers.Peers()[shard] {
		return says, fmt.Errorf("shard %s is not heard: try again when it is", shard)
	}
	query, err := q.Query()
	if err != nil {
		return says, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	leave, err := o.places.Enter(ctx, shard)
	if err != nil {
		return says, fmt.Errorf("shard %s: %w", shard, err)
	}
	defer leave()
	body, err := o.peers.Ask(ctx, shard, status.ExportPath+"?"+query.Encode(), each, maxAnswer)
	if err != nil {
		return says, fmt.Errorf("shard %s does not answer: %w", shard, err)
	}
	if err := json.Unmarshal(body, &says); err != nil {
		return says, fmt.Errorf("what shard %s answers cannot be decoded: %w", shard, err)
	}
	return says, nil
}

var _ controllers.OfferReader = (*Others)(nil)
