package front

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/routing"
)

// maxMoves is how often a request follows a logical cluster from shard to shard.
const maxMoves = 4

// errMisdirected is of a shard that says that a logical cluster is not there.
var errMisdirected = errors.New("the logical cluster is on another shard")

// follows forwards a request, and follows the logical cluster if that has just moved: the index does not know yet, or
// the request waited meanwhile at the shard that the cluster was on.
func (f *Front) follows(x *exchange, req *http.Request, to *shard, path, client string) {
	body, err := keep(req)
	if err != nil {
		refuse(x, apierrors.NewBadRequest(err.Error()))
		return
	}
	again := body != nil || req.Body == nil || req.Body == http.NoBody || req.ContentLength == 0
	for moves := 0; ; moves++ {
		if body != nil {
			req.Body = io.NopCloser(bytes.NewReader(body))
		}
		isMisdirected := f.forward(x, req, to, path, client, moves < maxMoves)
		if !isMisdirected {
			return
		}
		next, err := f.next(req.Context(), to, path)
		switch {
		case err != nil:
			refuse(x, err)
			return
		case !again:
			refuse(x, routing.NewUnavailable("the logical cluster has just moved to another shard, and nothing was written: send the request again"))
			return
		}
		to = next
	}
}

// next returns the shard on which the logical cluster of a path is that a shard says it does not have.
func (f *Front) next(ctx context.Context, from *shard, path string) (*shard, error) {
	cluster, ok := clusterIn(path)
	if !ok {
		return nil, routing.NewUnavailable("the logical cluster is on another shard than the front knew: try again")
	}
	if at, ok := f.index.find(cluster.Path()); ok && at.shard != from.name { // heard by now
		return f.shardOf(cluster, at.shard)
	}
	ctx, cancel := context.WithTimeout(ctx, f.liveTimeout)
	defer cancel()
	_, err := from.logicalCluster(ctx, cluster)
	to := movedTo(err)
	if to == "" {
		return nil, &noAnswer{routing.NewUnavailable(fmt.Sprintf("shard %s does not say where logical cluster %q is", from.name, cluster)), errors.Join(errMisdirected, err)}
	}
	f.index.moved(cluster, from.name, to)
	return f.shardOf(cluster, to)
}

func (f *Front) shardOf(cluster logicalcluster.Name, name string) (*shard, error) {
	if s, ok := f.shard(name); ok {
		return s, nil
	}
	return nil, routing.NewUnavailable(fmt.Sprintf("logical cluster %q is on shard %s, which this front does not know", cluster, name))
}

// logicalCluster reads a LogicalCluster. The error for one that has moved tells where: see movedTo.
func (s *shard) logicalCluster(ctx context.Context, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	lc, err := s.clients.LogicalClusters.Get(clusters.With(ctx, cluster), corev1alpha1.LogicalClusterName, metav1.GetOptions{})
	if err == nil && clusters.HasMoved(lc) { // the replica that has read it has not heard of it yet
		return nil, &clusters.MovedError{Cluster: cluster, To: clusters.MovedTo(lc)}
	}
	return lc, err
}

// movedTo returns the shard to which a logical cluster has moved, as the answer of its former shard says. It is empty
// for any other answer.
func movedTo(err error) string {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return ""
	}
	return clusters.MoveIn(status.Status()).Shard
}

// clusterIn returns the name of the logical cluster that a path on a shard begins with.
func clusterIn(path string) (logicalcluster.Name, bool) {
	after, ok := strings.CutPrefix(path, "/clusters/")
	name, _, _ := strings.Cut(after, "/")
	return logicalcluster.Name(name), ok && clusters.IsValidName(logicalcluster.Name(name))
}
