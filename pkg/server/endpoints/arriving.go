package endpoints

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/bundle"
	"github.com/regent-project/regent/pkg/server/moves"
	"github.com/regent-project/regent/pkg/server/storage"
)

// arriving handles bundle.ArrivingPath, for whom freeze handles its path. It answers 409 if the logical cluster cannot
// come, or has not left yet, and 410 if the freeze has ended.
type arriving struct {
	freeze
	moves *moves.Moves
}

// ServeHTTP implements http.Handler.
func (a *arriving) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	frozen, err := a.take(req)
	answerJSON(w, req, a.serializer, frozen, err)
}

func (a *arriving) take(req *http.Request) (bundle.Frozen, error) {
	if at, ok := clusters.From(req.Context()); !ok || at != clusters.SystemAdmin {
		return bundle.Frozen{}, apierrors.NewBadRequest("a logical cluster arrives at its shard, as in /clusters/" + clusters.SystemAdmin.String() + bundle.ArrivingPath)
	}
	who, err := a.mayWriteAll(req, bundle.ArrivingPath)
	if err != nil {
		return bundle.Frozen{}, err
	}
	query := req.URL.Query()
	if req.Method == http.MethodPost && query.Get("freeze") == "" {
		return a.begin(req, who)
	}
	cluster := logicalcluster.Name(query.Get("cluster"))
	if query.Get("freeze") == "" && clusters.IsValidName(cluster) {
		return bundle.Frozen{}, a.interrupt(req, cluster)
	}
	frozen, err := storage.ParseFreeze(cluster, query.Get("freeze"))
	if err != nil || !clusters.IsValidName(cluster) {
		return bundle.Frozen{}, apierrors.NewBadRequest("give ?cluster= the name of the logical cluster, and ?freeze= what the answer to POST has said")
	}
	switch {
	case req.Method == http.MethodPut && query.Has("schema"):
		err = a.keepSchema(req, frozen, query.Get("schema"))
	case req.Method == http.MethodPut:
		err = a.fill(req, frozen)
	case req.Method == http.MethodPatch:
		err = a.complete(req, frozen)
	case req.Method == http.MethodPost:
		err = answerOf(a.moves.Arrive(req.Context(), frozen, clusters.Move{Shard: query.Get("from"), ID: query.Get("move")}))
	case req.Method == http.MethodDelete:
		err = answerOf(a.moves.Cancel(req.Context(), frozen))
	default:
		err = apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "arriving"}, req.Method)
	}
	return tell(frozen), err
}

// interrupt says whether a logical cluster comes, and for DELETE ends that.
func (a *arriving) interrupt(req *http.Request, cluster logicalcluster.Name) (err error) {
	switch req.Method {
	case http.MethodGet:
		err = a.moves.Comes(req.Context(), cluster)
	case http.MethodDelete:
		err = a.moves.Interrupt(req.Context(), cluster)
	default:
		return apierrors.NewBadRequest("give ?freeze= what the answer to POST has said")
	}
	if errors.Is(err, storage.ErrThawed) {
		return newStatus(http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("no logical cluster %s comes from another shard", cluster))
	}
	return answerOf(err)
}

// arrivalOf reads what the body says.
func arrivalOf(req *http.Request) (bundle.Arriving, *corev1alpha1.LogicalCluster, error) {
	var given bundle.Arriving
	if err := json.NewDecoder(http.MaxBytesReader(nil, req.Body, bundle.MaxWrite)).Decode(&given); err != nil {
		return given, nil, apierrors.NewBadRequest(fmt.Sprintf("the body is no logical cluster that arrives: %v", err))
	}
	lc := &corev1alpha1.LogicalCluster{}
	if err := json.Unmarshal(given.LogicalCluster, lc); err != nil {
		return given, nil, apierrors.NewBadRequest(fmt.Sprintf("the LogicalCluster cannot be read: %v", err))
	}
	return given, lc, nil
}

func (a *arriving) begin(req *http.Request, who string) (bundle.Frozen, error) {
	given, lc, err := arrivalOf(req)
	if err != nil {
		return bundle.Frozen{}, err
	}
	if !clusters.IsSegment(given.Shard) || !clusters.IsSegment(given.Move) || !clusters.IsSegment(given.OwnerShard) {
		return bundle.Frozen{}, apierrors.NewBadRequest("shard, move and ownerShard must be small letters, digits and dashes")
	}
	if err := a.checkFormat(); err != nil {
		return bundle.Frozen{}, err
	}
	frozen, err := a.moves.Begin(req.Context(), lc, given.OwnerShard, clusters.Move{Shard: given.Shard, ID: given.Move}, who)
	return tell(frozen), answerOf(err)
}

func (a *arriving) complete(req *http.Request, frozen storage.Freeze) error {
	given, lc, err := arrivalOf(req)
	if err != nil {
		return err
	}
	return answerOf(a.moves.Complete(req.Context(), frozen, lc, given.Objects, storage.Resume{Since: given.Since, Last: given.Last, Until: given.Until}))
}

// fill writes objects as the other shard has them.
func (a *arriving) fill(req *http.Request, frozen storage.Freeze) error {
	objects, deletions, err := readObjects(frozen.Cluster, req.Body, mayArrive)
	if err != nil {
		return err
	}
	if err := a.moves.Localize(req.Context(), frozen.Cluster, objects); err != nil {
		return answerOf(err)
	}
	return a.put(req.Context(), frozen, objects, deletions)
}

// keepSchema keeps a schema that the logical cluster has bound.
func (a *arriving) keepSchema(req *http.Request, frozen storage.Freeze, name string) error {
	s := &apisv1alpha1.APIResourceSchema{}
	if err := json.NewDecoder(http.MaxBytesReader(nil, req.Body, bundle.MaxWrite)).Decode(s); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("the body is no APIResourceSchema: %v", err))
	}
	if err := a.freezer.Renew(req.Context(), frozen); err != nil {
		return answerOf(err)
	}
	return answerOf(a.moves.TakeSchema(req.Context(), frozen.Cluster, name, s))
}

// mayArrive says why an object is not written, as bundle.LeftAlone does.
func mayArrive(key string) string {
	if key == bundle.LogicalClusterKey {
		return "the logical cluster itself arrives last"
	}
	return ""
}

var _ http.Handler = (*arriving)(nil)
