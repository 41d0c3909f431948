package endpoints

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/bundle"
	"github.com/regent-project/regent/pkg/server/format"
	"github.com/regent-project/regent/pkg/server/moves"
	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/storage"
)

// Freezer freezes logical clusters, and writes what they have.
type Freezer interface {
	Freeze(ctx context.Context, cluster logicalcluster.Name, why string) (storage.Freeze, error)
	Renew(context.Context, storage.Freeze) error
	Write(ctx context.Context, f storage.Freeze, objects []storage.Stored, deletions []string) error
	Thaw(context.Context, storage.Freeze) (through int64, err error)
	Come(ctx context.Context, cluster logicalcluster.Name, lc storage.Stored, why string) (storage.Freeze, error)
	Settle(ctx context.Context, f storage.Freeze, lc storage.Stored, in logicalcluster.Name, revision int64, workspace storage.Stored) (through int64, err error)
	Discard(ctx context.Context, cluster logicalcluster.Name, revision int64, by *storage.Freeze) error
}

// Allowed is access.Allowed.
type Allowed = func(ctx context.Context, cluster logicalcluster.Name, attributes authorizer.AttributesRecord) (bool, error)

// freeze handles bundle.FreezePath, for members of system:masters, and for whom a ClusterRoleBinding in system:admin
// allows it who may also use the path in the logical cluster itself. Whoever may do everything in a workspace may not:
// what is written is checked by no admission, so it could give rights in other workspaces. It answers 409 if the
// cluster is frozen already, if it is being deleted, or if older replicas may serve the shard, which would write all
// the same; and 410 if the freeze has ended.
type freeze struct {
	freezer  Freezer
	formats  func() (format.Formats, format.Record)
	clusters *clusters.Informer[*corev1alpha1.LogicalCluster]
	// elsewhere decides about rights in another logical cluster: see access.Elsewhere.
	elsewhere  Allowed
	serializer runtime.NegotiatedSerializer
}

// ServeHTTP implements http.Handler.
func (f *freeze) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	frozen, err := f.take(req)
	answerJSON(w, req, f.serializer, frozen, err)
}

func (f *freeze) take(req *http.Request) (bundle.Frozen, error) {
	cluster, ok := clusters.From(req.Context())
	if !ok || cluster == clusters.Wildcard || clusters.IsSystem(cluster) {
		return bundle.Frozen{}, apierrors.NewBadRequest("a freeze is of one logical cluster that has a path, as in /clusters/root:team" + bundle.FreezePath)
	}
	who, err := f.mayWriteAll(req, bundle.FreezePath)
	if err != nil {
		return bundle.Frozen{}, err
	}
	if req.Method == http.MethodPost {
		return f.begin(req.Context(), cluster, who)
	}
	frozen, err := storage.ParseFreeze(cluster, req.URL.Query().Get("freeze"))
	if err != nil {
		return bundle.Frozen{}, apierrors.NewBadRequest(err.Error() + ": give ?freeze= what the answer to POST has said")
	}
	switch req.Method {
	case http.MethodPut:
		err = f.write(req.Context(), frozen, req.Body)
	case http.MethodDelete:
		frozen.Revision, err = f.thaw(req.Context(), frozen)
	default:
		err = apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "freeze"}, req.Method)
	}
	return tell(frozen), err
}

func tell(f storage.Freeze) bundle.Frozen {
	return bundle.Frozen{Freeze: f.ID(), Revision: f.Revision, Seconds: int(storage.FreezeTTL / time.Second)}
}

// mayWriteAll returns the request's user, and an error unless an administrator of the shard lets it.
func (f *freeze) mayWriteAll(req *http.Request, path string) (string, error) {
	info, known := apirequest.RequestInfoFrom(req.Context())
	who, ok := apirequest.UserFrom(req.Context())
	if !ok || !known {
		return "", apierrors.NewUnauthorized("nobody is known to ask")
	}
	allowed, err := f.elsewhere(req.Context(), clusters.Wildcard, authorizer.AttributesRecord{User: who, Verb: info.Verb, Path: path})
	switch {
	case err != nil:
		return "", routing.NewUnavailable(fmt.Sprintf("it cannot be found out whether user %q may freeze: %v", who.GetName(), err))
	case !allowed:
		return "", apierrors.NewForbidden(schema.GroupResource{Resource: "freeze"}, "", fmt.Errorf(
			"what is written is checked by nobody: user %q, also an impersonator, must be allowed to %s the path %s in the logical cluster %s of the shard, too",
			who.GetName(), info.Verb, path, clusters.SystemAdmin))
	}
	return who.GetName(), nil
}

func (f *freeze) begin(ctx context.Context, cluster logicalcluster.Name, who string) (bundle.Frozen, error) {
	if err := f.checkFormat(); err != nil {
		return bundle.Frozen{}, err
	}
	if lc, ok := f.clusters.Get(clusters.Key{Cluster: cluster, Name: corev1alpha1.LogicalClusterName}); ok && lc.DeletionTimestamp != nil {
		return bundle.Frozen{}, newConflict("logical cluster %s is being deleted", cluster)
	}
	frozen, err := f.freezer.Freeze(ctx, cluster, fmt.Sprintf("user %q has frozen it at %s to put back what it was", who, time.Now().UTC().Format(time.RFC3339)))
	return tell(frozen), answerOf(err)
}

// checkFormat returns an error while replicas may serve that know nothing of freezes.
func (f *freeze) checkFormat() error {
	if _, stored := f.formats(); stored.Format < format.BuiltIn {
		return newConflict("older replicas may serve this shard, and would write in a frozen logical cluster: upgrade all, and run regent upgrade finalize")
	}
	return nil
}

func (f *freeze) thaw(ctx context.Context, frozen storage.Freeze) (int64, error) {
	through, err := f.freezer.Thaw(ctx, frozen)
	return through, answerOf(err)
}

func (f *freeze) write(ctx context.Context, frozen storage.Freeze, body io.Reader) error {
	objects, deletions, err := readObjects(frozen.Cluster, body, bundle.LeftAlone)
	if err != nil {
		return err
	}
	if err := withoutVersions(objects); err != nil {
		return answerOf(err)
	}
	return f.put(ctx, frozen, objects, deletions)
}

// withoutVersions has objects show the version of their write, and not that of a move before it.
func withoutVersions(objects []storage.Stored) (err error) {
	for n := range objects {
		if objects[n].JSON, err = storage.WithoutVersion(objects[n].JSON); err != nil {
			return fmt.Errorf("%s: %w", objects[n].Key, err)
		}
	}
	return nil
}

// put renews a freeze, and writes and deletes under it.
func (f *freeze) put(ctx context.Context, frozen storage.Freeze, objects []storage.Stored, deletions []string) error {
	if err := f.freezer.Renew(ctx, frozen); err != nil || len(objects)+len(deletions) == 0 {
		return answerOf(err)
	}
	return answerOf(f.freezer.Write(ctx, frozen, objects, deletions))
}

// readObjects reads what is to be written, and what is to be deleted. leftAlone says why an object is neither, by its
// key.
func readObjects(cluster logicalcluster.Name, body io.Reader, leftAlone func(key string) string) (objects []storage.Stored, deletions []string, err error) {
	body = http.MaxBytesReader(nil, io.NopCloser(body), bundle.MaxWrite)
	lines, seen := json.NewDecoder(body), map[string]bool{}
	for {
		var o bundle.Object
		if err := lines.Decode(&o); errors.Is(err, io.EOF) {
			return objects, deletions, nil
		} else if err != nil {
			return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("line %d is no object of a bundle, or there are more than %d bytes: %v", len(objects)+len(deletions)+1, bundle.MaxWrite, err))
		}
		if why := leftAlone(o.Key); why != "" {
			return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("%s: such objects stay as they are: %s", o.Key, why))
		}
		if err := checkObject(cluster, o); err != nil {
			return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("%s: %v", o.Key, err))
		}
		if seen[o.Key] {
			return nil, nil, apierrors.NewBadRequest(o.Key + " is there twice")
		}
		seen[o.Key] = true
		if o.Deleted {
			deletions = append(deletions, o.Key)
			continue
		}
		objects = append(objects, storage.Stored{Key: o.Key, Revision: o.Revision, JSON: o.Object})
	}
}

// checkObject returns an error for what no server could have stored at that place. Nothing else checks it.
func checkObject(cluster logicalcluster.Name, o bundle.Object) error {
	if err := bundle.CheckKey(o.Key); err != nil {
		return err
	}
	if o.Deleted {
		return nil
	}
	var is struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ObjectMeta `json:"metadata"`
	}
	if err := utiljson.Unmarshal(o.Object, &is); err != nil { // which tells a user's field "Kind" from "kind"
		return fmt.Errorf("it is no object: %w", err)
	}
	at := path.Dir(o.Key)
	switch {
	case is.Kind == "" || is.APIVersion == "":
		return errors.New("it has no kind or no apiVersion")
	case !isOfKind(o.Key, is.GroupVersionKind()):
		return fmt.Errorf("it is a %s of %s, and not of the kind that the key names", is.Kind, is.APIVersion)
	case is.Metadata.Name != path.Base(o.Key) || is.Metadata.Namespace != "" && is.Metadata.Namespace != path.Base(at):
		return fmt.Errorf("its name and namespace are %s/%s", is.Metadata.Namespace, is.Metadata.Name)
	case is.Metadata.Namespace == "" && isNamespaced(o.Key), is.Metadata.Namespace != "" && !isNamespaced(o.Key):
		return fmt.Errorf("its namespace is %q", is.Metadata.Namespace)
	case is.Metadata.UID == "":
		return errors.New("it has no uid")
	case logicalcluster.From(&is.Metadata) != cluster:
		return fmt.Errorf("it is of logical cluster %q, not of %s", logicalcluster.From(&is.Metadata), cluster)
	}
	return nil
}

// isOfKind reports whether a key is one of a kind's objects.
func isOfKind(key string, kind schema.GroupVersionKind) bool {
	if strings.HasPrefix(key, "custom/") {
		return strings.HasPrefix(key, "custom/"+kind.Group+"/"+kind.Kind+"/")
	}
	resource, _ := meta.UnsafeGuessKindToResource(kind) // no built-in kind has an odd plural
	return strings.HasPrefix(key, cmp.Or(kind.Group, "core")+"/"+resource.Resource+"/")
}

// isNamespaced reports whether a key has a namespace.
func isNamespaced(key string) bool {
	slashes := 2
	if strings.HasPrefix(key, "custom/") {
		slashes++
	}
	return strings.Count(key, "/") > slashes
}

// answerOf returns what is answered for an error of storage.
func answerOf(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, storage.ErrThawed):
		return apierrors.NewResourceExpired(err.Error() + "; some objects may have been written: freeze it again, and write all of them")
	case errors.Is(err, moves.ErrCannotMove), errors.Is(err, moves.ErrUndecided), errors.Is(err, moves.ErrIncomplete), errors.Is(err, storage.ErrDecided):
		return newConflict("%v", err)
	case errors.Is(err, storage.ErrClusterThere), errors.Is(err, storage.ErrWorkspaceThere):
		return newConflict("%v: delete it first, or put it back in place (regent cluster restore)", err)
	case errors.Is(err, storage.ErrFrozen), errors.Is(err, storage.ErrParentChanged):
		return newConflict("%v: try again later", err)
	case errors.Is(err, storage.ErrUnstorable), errors.Is(err, storage.ErrTooLarge):
		return apierrors.NewBadRequest(err.Error())
	case errors.Is(err, storage.ErrNoCluster):
		return newStatus(http.StatusNotFound, metav1.StatusReasonNotFound, err.Error())
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return err
	}
	return routing.NewUnavailable(err.Error())
}

var _ http.Handler = (*freeze)(nil)
