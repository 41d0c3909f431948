package definition

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// finder says where cluster maker is.
type finder struct {
	at    string
	fault error
	asked int
}

func (f *finder) Find(_ context.Context, path logicalcluster.Path) (string, logicalcluster.Name, error) {
	f.asked++
	if path.String() != "maker" {
		return "", "", errors.New("nobody should ask for " + path.String())
	}
	return f.at, "maker", f.fault
}

// renames takes updates of bindings, and notes of which shard each says that its export is.
type renames struct{ shards []string }

func (r *renames) RoundTrip(req *http.Request) (*http.Response, error) {
	text, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	b := binding(nil)
	if err := json.Unmarshal(text, &b); err != nil || req.Method != http.MethodPut || !strings.HasSuffix(req.URL.Path, "/apibindings/b") {
		return nil, errors.New(req.Method + " " + req.URL.Path + " is no update of the binding")
	}
	r.shards = append(r.shards, controllers.ExportShardOf(b))
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)), Request: req}, nil
}

// exportless is a controller whose binding names a shard that has the export no more.
func exportless(t *testing.T, f *finder) (*taker, *renames) {
	t.Helper()
	k, r := taking(t), &renames{}
	clients, err := controllers.NewClients(&rest.Config{Host: "http://127.0.0.1", QPS: -1}, &http.Client{Transport: clusters.Transport(r)})
	if err != nil {
		t.Fatal(err)
	}
	k.clients = clients
	k.others.Contact.Set("m", true)
	k.others.Homes = f
	k.exporter.offer = nil
	if err := k.pull(t.Context(), k.key()); err != nil {
		t.Fatal(err)
	}
	return k, r
}

func TestAnExportThatHasMovedIsFollowed(t *testing.T) {
	for name, tc := range map[string]struct{ at, want string }{
		"to a third shard": {at: "k", want: "k"},
		"to this shard":    {at: "n"},
	} {
		k, r := exportless(t, &finder{at: tc.at})
		if message, waits, _ := k.says(); !waits || message != "" {
			t.Errorf("%s: before it is asked where it is the binding says %q", name, message)
		}
		if err := k.locate(t.Context(), k.homeOf(k.binding)); err != nil {
			t.Fatal(err)
		}
		if len(r.shards) != 1 || r.shards[0] != tc.want {
			t.Errorf("%s: the binding was written with %q", name, r.shards)
		}
	}
}

func TestAnExportThatIsNowhereElseHasGone(t *testing.T) {
	gone := apierrors.NewNotFound(schema.GroupResource{}, "maker")
	for name, f := range map[string]*finder{"its cluster is still there": {at: "m"}, "its cluster has gone, too": {fault: gone}} {
		k, r := exportless(t, f)
		of := k.homeOf(k.binding)
		for range 2 { // and nobody is asked again at once
			if err := k.locate(t.Context(), of); err != nil {
				t.Fatal(err)
			}
			if message, waits, _ := k.says(); waits || !strings.Contains(message, "there is no APIExport parcels") {
				t.Errorf("%s: the binding says %q, waits %t", name, message, waits)
			}
		}
		if len(r.shards) > 0 || f.asked != 1 {
			t.Errorf("%s: written %q, asked %d times", name, r.shards, f.asked)
		}
		k.homes.asked[of] = time.Now().Add(-offerPeriod)
		if err := k.locate(t.Context(), of); err != nil || f.asked != 2 {
			t.Errorf("%s: asked %d times (%v)", name, f.asked, err)
		}
	}
}

// While it moves nobody can say where it is, and while a shard does not answer neither: the binding stays as it is.
func TestNothingIsSaidOfAnExportThatMoves(t *testing.T) {
	for name, tc := range map[string]struct {
		fault error
		fails bool
	}{
		"it moves":                  {fault: &clusters.MovedError{Cluster: "maker", To: clusters.Move{Shard: "k", ID: "1"}}},
		"a shard does not answer":   {fault: errors.New("shard k is not heard"), fails: true},
		"the answer cannot be read": {fault: apierrors.NewInternalError(errors.New("a fault")), fails: true},
	} {
		k, r := exportless(t, &finder{fault: tc.fault})
		if err := k.locate(t.Context(), k.homeOf(k.binding)); (err != nil) != tc.fails {
			t.Errorf("%s: %v", name, err)
		}
		if message, waits, _ := k.says(); !waits || len(r.shards) > 0 {
			t.Errorf("%s: the binding says %q, written %q", name, message, r.shards)
		}
	}
}

// The cluster of an export is asked for only if this shard does not have it.
func TestNobodyIsAskedForAnExportThatWasNeverMade(t *testing.T) {
	f := &finder{at: "k"}
	k, _ := exportless(t, f)
	own := k.binding.DeepCopy()
	delete(own.Annotations, clusters.ExportShardAnnotation)
	for _, cluster := range []string{"", clusters.Root.String()} {
		own.Annotations[clusters.ExportClusterAnnotation] = cluster
		if k.mayHaveMoved(own) {
			t.Errorf("cluster %q is looked for", cluster)
		}
	}
}

// A shard is emptied, and removed, before its exports were asked for again: it says nothing any more.
func TestAnExportOfARemovedShardIsFollowed(t *testing.T) {
	synctest.Test(t, aShardIsRemoved)
}

func aShardIsRemoved(t *testing.T) {
	f := &finder{at: "k"}
	k, r := exportless(t, f)
	k.others.Contact.Set("m", false)
	k.offers.doubt("m")
	if err := k.pull(t.Context(), k.key()); err != nil || f.asked > 0 {
		t.Errorf("a shard that is not heard: asked %d times (%v)", f.asked, err)
	}
	k.shards.Set(&corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "m", Annotations: map[string]string{
		logicalcluster.AnnotationKey: clusters.SystemShards.String(), clusters.RemovedAnnotation: "2026-01-01T00:00:00Z",
	}}})
	synctest.Wait()
	if err := k.pull(t.Context(), k.key()); err != nil || len(r.shards) != 1 || r.shards[0] != "k" {
		t.Errorf("a shard that was removed: the binding was written with %q (%v)", r.shards, err)
	}
}
