package endpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/bundle"
	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/storage"
)

// coming handles bundle.ComingPath, for whom freeze handles its path. It answers 409 if the logical cluster or the
// Workspace is there, on this shard or on another one, if somebody else takes it in, or if older replicas may serve the
// shard; and 410 if the freeze has ended.
type coming struct {
	freeze
	live routing.Live
	// nowhereElse returns an error unless each other shard says that it does not have a logical cluster.
	nowhereElse func(context.Context, logicalcluster.Name) error
	baseURL     string
	// seen returns a revision that etcd has had, and rootCA has the authorities by which clients know the API: a
	// logical cluster that is made now has its built-in objects by them.
	seen   func() int64
	rootCA string
}

// ServeHTTP implements http.Handler.
func (c *coming) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	frozen, err := c.take(req)
	answerJSON(w, req, c.serializer, frozen, err)
}

func (c *coming) take(req *http.Request) (bundle.Frozen, error) {
	parent, ok := clusters.From(req.Context())
	if !ok || parent == clusters.Wildcard || clusters.IsSystem(parent) {
		return bundle.Frozen{}, apierrors.NewBadRequest("a workspace is taken in where it was, as in /clusters/root" + bundle.ComingPath)
	}
	who, err := c.mayWriteAll(req, bundle.ComingPath)
	if err != nil {
		return bundle.Frozen{}, err
	}
	freeze := req.URL.Query().Get("freeze")
	if req.Method == http.MethodPost {
		a, err := c.read(req, parent)
		if err != nil {
			return bundle.Frozen{}, err
		}
		if freeze == "" {
			return c.begin(req.Context(), a, who)
		}
		return c.settle(req.Context(), a, freeze)
	}
	cluster := logicalcluster.Name(req.URL.Query().Get("cluster"))
	frozen, err := storage.ParseFreeze(cluster, freeze)
	if err != nil || !clusters.IsValidName(cluster) {
		return bundle.Frozen{}, apierrors.NewBadRequest("give ?cluster= the name of the logical cluster, and ?freeze= what the answer to POST has said")
	}
	switch req.Method {
	case http.MethodPut:
		err = c.fill(req.Context(), frozen, req.Body)
	case http.MethodDelete:
		err = answerOf(c.freezer.Discard(req.Context(), cluster, frozen.Revision, &frozen))
	default:
		err = apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "coming"}, req.Method)
	}
	return tell(frozen), err
}

// fill writes objects. Of what every logical cluster has, and this one has no more, it writes the tombstone: nobody
// gets back what was taken from them, such as the rights of who made the workspace.
func (c *coming) fill(ctx context.Context, frozen storage.Freeze, body io.Reader) error {
	objects, deleted, err := readObjects(frozen.Cluster, body, bundle.LeftAlone)
	if err != nil {
		return err
	}
	if err := withoutVersions(objects); err != nil {
		return answerOf(err)
	}
	if len(deleted) > 0 {
		lc, err := c.live.LogicalCluster(ctx, frozen.Cluster)
		if err != nil {
			return err
		}
		for _, key := range deleted {
			gone, err := tombstoneAt(clusters.BuiltIn{LogicalCluster: lc, RootCA: c.rootCA}, key)
			if err != nil {
				return err
			}
			objects = append(objects, gone)
		}
	}
	return c.put(ctx, frozen, objects, nil)
}

// arrival is a logical cluster that is to come, and its Workspace.
type arrival struct {
	parent  logicalcluster.Name
	cluster logicalcluster.Name
	// lc is the LogicalCluster as it will be, and workspace the Workspace.
	lc        *corev1alpha1.LogicalCluster
	workspace *tenancyv1alpha1.Workspace
	// epoch is the value of clusters.EpochAnnotation.
	epoch string
}

// read returns what is to come, as the shard stores it.
func (c *coming) read(req *http.Request, parent logicalcluster.Name) (*arrival, error) {
	var given bundle.Coming
	if err := json.NewDecoder(http.MaxBytesReader(nil, req.Body, bundle.MaxWrite)).Decode(&given); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the body is not a LogicalCluster and its Workspace: %v", err))
	}
	a := &arrival{parent: parent, lc: &corev1alpha1.LogicalCluster{}, workspace: &tenancyv1alpha1.Workspace{}}
	if err := json.Unmarshal(given.LogicalCluster, a.lc); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the LogicalCluster cannot be read: %v", err))
	}
	if err := a.checkLogicalCluster(); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the LogicalCluster cannot come: %v", err))
	}
	a.epoch = strconv.FormatInt(clusters.NextEpoch(a.lc, time.Now()), 10)
	if len(given.Workspace) > 0 {
		if err := json.Unmarshal(given.Workspace, a.workspace); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the Workspace cannot be read: %v", err))
		}
	} else {
		a.makeWorkspace()
	}
	if err := a.checkWorkspace(); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the Workspace cannot come: %v", err))
	}
	return a, nil
}

// checkLogicalCluster returns an error for what is no LogicalCluster of a workspace of the parent that was Ready.
func (a *arrival) checkLogicalCluster() error {
	lc, owner := a.lc, a.lc.Spec.Owner
	a.cluster = logicalcluster.From(lc)
	switch {
	case lc.Kind != "LogicalCluster" || lc.APIVersion != corev1alpha1.SchemeGroupVersion.String() || lc.Name != corev1alpha1.LogicalClusterName:
		return fmt.Errorf("it is %s %q of %s", lc.Kind, lc.Name, lc.APIVersion)
	case !clusters.IsValidName(a.cluster) || clusters.IsPermanent(a.cluster) || clusters.IsSystem(a.cluster):
		return fmt.Errorf("%q is the name of no logical cluster of a workspace", a.cluster)
	case lc.UID == "":
		return errors.New("it has no uid")
	case owner == nil || owner.Resource != "workspaces" || owner.APIVersion != tenancyv1alpha1.SchemeGroupVersion.String() || owner.UID == "" || !clusters.IsSegment(owner.Name):
		return errors.New("it belongs to no Workspace")
	case owner.Cluster != a.parent.String():
		return fmt.Errorf("its Workspace was in logical cluster %s, and this is %s: take that one in first, or make a new workspace of it", owner.Cluster, a.parent)
	case lc.DeletionTimestamp != nil:
		return errors.New("it was being deleted: take it as it was before")
	case lc.Status.Phase != corev1alpha1.LogicalClusterPhaseReady || len(lc.Status.Initializers) > 0:
		return fmt.Errorf("it was not Ready, but %q: take it as it was later", lc.Status.Phase)
	}
	if _, err := clusters.CreatorBindingOf(lc); err != nil {
		return fmt.Errorf("annotation %s: %w", tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey, err)
	}
	return nil
}

// makeWorkspace makes a Workspace of what the LogicalCluster says of it.
func (a *arrival) makeWorkspace() {
	a.workspace = &tenancyv1alpha1.Workspace{
		TypeMeta: metav1.TypeMeta{Kind: "Workspace", APIVersion: tenancyv1alpha1.SchemeGroupVersion.String()},
		ObjectMeta: metav1.ObjectMeta{
			Name: a.lc.Spec.Owner.Name, UID: a.lc.Spec.Owner.UID, CreationTimestamp: a.lc.CreationTimestamp, Generation: 1,
			Annotations: map[string]string{logicalcluster.AnnotationKey: a.parent.String()},
		},
		Spec: tenancyv1alpha1.WorkspaceSpec{Cluster: a.cluster.String()},
	}
	if owner := a.lc.Annotations[tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey]; owner != "" {
		a.workspace.Annotations[tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey] = owner
	}
	if path, name := logicalcluster.NewPath(a.lc.Annotations[tenancyv1alpha1.LogicalClusterTypeAnnotationKey]).Split(); name != "" {
		a.workspace.Spec.Type = &tenancyv1alpha1.WorkspaceTypeReference{Path: path.String(), Name: tenancyv1alpha1.WorkspaceTypeName(name)}
	}
}

// checkWorkspace returns an error for what is not the Workspace of the LogicalCluster.
func (a *arrival) checkWorkspace() error {
	ws, owner := a.workspace, a.lc.Spec.Owner
	switch {
	case ws.Kind != "Workspace" || ws.APIVersion != tenancyv1alpha1.SchemeGroupVersion.String():
		return fmt.Errorf("it is %s of %s", ws.Kind, ws.APIVersion)
	case ws.Name != owner.Name || ws.UID != owner.UID || logicalcluster.From(ws) != a.parent || ws.Spec.Cluster != a.cluster.String():
		return fmt.Errorf("it is %s/%s with uid %s and logical cluster %q, and the LogicalCluster %q belongs to %s/%s with uid %s",
			logicalcluster.From(ws), ws.Name, ws.UID, ws.Spec.Cluster, a.cluster, owner.Cluster, owner.Name, owner.UID)
	case ws.Namespace != "" || ws.Spec.Mount != nil:
		return errors.New("it has a namespace, or a mount")
	case ws.DeletionTimestamp != nil:
		return errors.New("it was being deleted: take it as it was before")
	}
	return nil
}

// settleIn makes both what they are on this shard, below a parent.
func (c *coming) settleIn(a *arrival, parent *corev1alpha1.LogicalCluster) error {
	path := a.parent.String()
	if above := parent.Annotations[core.LogicalClusterPathAnnotationKey]; above != "" {
		path = above
	}
	path += ":" + a.workspace.Name
	if was := a.lc.Annotations[core.LogicalClusterPathAnnotationKey]; was != path {
		return apierrors.NewBadRequest(fmt.Sprintf("it was at %s, and what is in it may name that path, so it cannot come to %s as it was: make a new workspace of it", was, path))
	}
	lc, ws := a.lc, a.workspace
	for _, obj := range []metav1.Object{lc, ws} {
		obj.SetResourceVersion("")
		obj.SetSelfLink("")
		obj.SetOwnerReferences(nil)
	}
	delete(lc.Labels, clusters.OwnerShardLabel)
	delete(lc.Annotations, clusters.ComingAnnotation)
	lc.Annotations[clusters.EpochAnnotation] = a.epoch
	conditions.Delete(lc, clusters.ConditionOrphaned)
	if clusters.HasBuiltIn(lc) {
		lc.Annotations[clusters.BuiltInAnnotation] = clusters.BuiltInValue(c.seen(), c.rootCA)
	}
	lc.Status.URL = c.baseURL + clusters.RequestPath(a.cluster)
	lc.Finalizers = with(lc.Finalizers, clusters.ContentFinalizer)
	delete(ws.Labels, clusters.ShardLabel)
	delete(ws.Annotations, clusters.PlacementAnnotation)
	delete(ws.Annotations, clusters.AdoptAnnotation)
	ws.Spec.URL, ws.Status.Phase = c.baseURL+"/clusters/"+path, corev1alpha1.LogicalClusterPhaseReady
	ws.Finalizers = with(ws.Finalizers, clusters.WorkspaceFinalizer)
	return nil
}

func with(finalizers []string, one string) []string {
	if slices.Contains(finalizers, one) {
		return finalizers
	}
	return append(finalizers, one)
}

// marked returns the LogicalCluster while it comes. It has no path yet: nobody finds it by that.
func (a *arrival) marked() *corev1alpha1.LogicalCluster {
	lc := a.lc.DeepCopy()
	delete(lc.Annotations, core.LogicalClusterPathAnnotationKey)
	lc.Annotations[clusters.ComingAnnotation] = time.Now().UTC().Format(time.RFC3339)
	return lc
}

// stored returns an object as storage takes it.
func stored(key string, obj any) (storage.Stored, error) {
	text, err := json.Marshal(obj)
	if err != nil {
		return storage.Stored{}, apierrors.NewInternalError(err)
	}
	return storage.Stored{Key: key, JSON: text}, nil
}

// parentOf reads the LogicalCluster that is to have the Workspace, and its revision.
func (c *coming) parentOf(ctx context.Context, a *arrival) (*corev1alpha1.LogicalCluster, int64, error) {
	parent, err := c.live.LogicalCluster(ctx, a.parent)
	if err != nil {
		return nil, 0, err
	}
	if parent.DeletionTimestamp != nil {
		return nil, 0, newConflict("logical cluster %s is being deleted", a.parent)
	}
	revision, err := strconv.ParseInt(parent.ResourceVersion, 10, 64)
	if err != nil {
		return nil, 0, apierrors.NewInternalError(fmt.Errorf("logical cluster %s: %w", a.parent, err))
	}
	return parent, revision, nil
}

func (c *coming) begin(ctx context.Context, a *arrival, who string) (bundle.Frozen, error) {
	if err := c.checkFormat(); err != nil {
		return bundle.Frozen{}, err
	}
	parent, _, err := c.parentOf(ctx, a)
	if err != nil {
		return bundle.Frozen{}, err
	}
	if err := c.settleIn(a, parent); err != nil {
		return bundle.Frozen{}, err
	}
	if err := c.isAbsent(ctx, a); err != nil {
		return bundle.Frozen{}, err
	}
	lc, err := stored(bundle.LogicalClusterKey, a.marked())
	if err != nil {
		return bundle.Frozen{}, err
	}
	frozen, err := c.freezer.Come(ctx, a.cluster, lc, fmt.Sprintf("user %q takes it in since %s", who, time.Now().UTC().Format(time.RFC3339)))
	return tell(frozen), answerOf(err)
}

// isAbsent returns an error if the Workspace or the logical cluster is there. What is left of one that did not come as
// a whole is removed.
func (c *coming) isAbsent(ctx context.Context, a *arrival) error {
	switch _, err := c.live.Workspace(ctx, a.parent, a.workspace.Name); {
	case err == nil:
		return answerOf(storage.ErrWorkspaceThere)
	case !apierrors.IsNotFound(err):
		return err
	}
	lc, err := c.live.LogicalCluster(ctx, a.cluster)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return err
	case !clusters.IsComing(lc):
		return newConflict("logical cluster %s is there: put it back in place (regent cluster restore --exact), or delete its workspace first", a.cluster)
	default:
		revision, err := strconv.ParseInt(lc.ResourceVersion, 10, 64)
		if err == nil {
			err = c.freezer.Discard(ctx, a.cluster, revision, nil)
		}
		if err != nil {
			return answerOf(err)
		}
	}
	return c.isNowhereElse(ctx, a.cluster)
}

func (c *coming) isNowhereElse(ctx context.Context, cluster logicalcluster.Name) error {
	if c.nowhereElse == nil {
		return nil
	}
	if err := c.nowhereElse(ctx, cluster); err != nil {
		return newConflict("logical cluster %s must be on no other shard: %v", cluster, err)
	}
	return nil
}

// settleTries is how often it is decided anew, because the parent has changed.
const settleTries = 5

// settle makes a logical cluster that comes one that is there. Other shards are asked once more: of two that take it
// in, each sees that of the other.
func (c *coming) settle(ctx context.Context, a *arrival, freeze string) (bundle.Frozen, error) {
	frozen, err := storage.ParseFreeze(a.cluster, freeze)
	if err != nil {
		return bundle.Frozen{}, apierrors.NewBadRequest(err.Error() + ": give ?freeze= what the answer to POST has said")
	}
	if err := c.isNowhereElse(ctx, a.cluster); err != nil {
		return bundle.Frozen{}, err
	}
	for range settleTries {
		parent, revision, failed := c.parentOf(ctx, a)
		if failed != nil {
			return bundle.Frozen{}, failed
		}
		if err := c.settleIn(a, parent); err != nil {
			return bundle.Frozen{}, err
		}
		var through int64
		if through, err = c.settleOnce(ctx, a, frozen, revision); !errors.Is(err, storage.ErrParentChanged) {
			frozen.Revision = through
			break
		}
	}
	if errors.Is(err, storage.ErrThawed) && c.isSettled(ctx, a) { // an answer was lost
		err = nil
	}
	return tell(frozen), answerOf(err)
}

func (c *coming) settleOnce(ctx context.Context, a *arrival, frozen storage.Freeze, revision int64) (int64, error) {
	lc, err := stored(bundle.LogicalClusterKey, a.lc)
	if err != nil {
		return 0, err
	}
	ws, err := stored(bundle.WorkspaceKeys+a.workspace.Name, a.workspace)
	if err != nil {
		return 0, err
	}
	return c.freezer.Settle(ctx, frozen, lc, a.parent, revision, ws)
}

// isSettled reports whether both are there.
func (c *coming) isSettled(ctx context.Context, a *arrival) bool {
	lc, err := c.live.LogicalCluster(ctx, a.cluster)
	if err != nil || lc.UID != a.lc.UID || clusters.IsComing(lc) {
		return false
	}
	ws, err := c.live.Workspace(ctx, a.parent, a.workspace.Name)
	return err == nil && ws.UID == a.workspace.UID
}

var _ http.Handler = (*coming)(nil)
