package storage_test

import (
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	upstream "k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/storage"
	"github.com/regent-project/regent/test/etcdtest"
)

// What is set aside is told as long as it is there, and no longer: when it is found at the start, when it comes while
// all is watched, when it is mended, and when it goes.
func TestWhatIsSetAsideIsToldUntilItHasGone(t *testing.T) {
	t.Parallel() // most of it is waiting
	const found, came = "/registry/core/configmaps/root/default/found", "/registry/core/configmaps/root/default/came"
	way := etcdtest.Start(t)
	first := newClient(t, way).Etcd()
	put := func(key, value string) int64 {
		t.Helper()
		resp, err := first.Put(t.Context(), key, value)
		if err != nil {
			t.Fatal(err)
		}
		return resp.Header.Revision
	}
	atStart := put(found, "noise")
	w := newWorld(t, way, false, nil)
	told := func(when string, number int, revision int64) {
		t.Helper()
		var got []storage.Aside
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			got = w.client.Aside()
			if number == 0 && len(got) == 0 || len(got) == 1 && got[0] == (storage.Aside{Resource: "configmaps", Number: number, Revision: revision}) {
				return
			}
		}
		t.Fatalf("%s: %+v, want %d with revision %d", when, got, number, revision)
	}
	told("at the start", 1, atStart)
	later := put(came, "{")
	told("one that comes", 2, later)
	if _, err := first.Delete(t.Context(), came); err != nil {
		t.Fatal(err)
	}
	told("one that goes", 1, atStart)
	mended := put(found, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"found","namespace":"default","annotations":{"kcp.io/cluster":"root"}}}`)
	// As upstream does each five minutes, to compare.
	everything := upstream.ListOptions{
		Recursive: true, Predicate: upstream.Everything,
		ResourceVersion: strconv.FormatInt(mended, 10), ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	}
	if err := w.objects.GetList(clusters.With(t.Context(), clusters.Wildcard), "/core/configmaps", everything, &corev1.ConfigMapList{}); err != nil {
		t.Fatal(err)
	}
	told("the other is mended", 0, 0)
}
