package apis

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/test/etcdtest"
)

// An object that somebody has overwritten in etcd with what is none is in no cache any more, also when that is deleted,
// which is how it is mended. Its name can be used again (I18).
func TestWhatIsNoObjectAnyMoreLeavesTheCacheI18(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	objects := s.kube(t, "aa").CoreV1().ConfigMaps("default")
	create := func(name string) {
		t.Helper()
		if _, err := objects.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	cached := func(want ...string) {
		t.Helper()
		var got []string
		for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(20 * time.Millisecond) {
			list, err := objects.List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
			if err != nil {
				continue // the cache is filled again
			}
			got = nil
			for _, item := range list.Items {
				got = append(got, item.Name)
			}
			if len(got) == len(want) && (len(want) == 0 || got[len(got)-1] == want[len(want)-1]) {
				return
			}
		}
		t.Fatalf("the cache has %q, want %q", got, want)
	}
	const below = "/registry/core/configmaps/aa/default/"
	create("a")
	create("b")
	cached("a", "b")
	if _, err := s.storage.Etcd().Put(t.Context(), below+"b", "no object"); err != nil {
		t.Fatal(err)
	}
	cached("a")
	if _, err := s.storage.Etcd().Put(t.Context(), below+"never", "no object either"); err != nil {
		t.Fatal(err)
	}
	create("c")
	cached("a", "c")
	for _, name := range []string{"b", "never"} {
		if _, err := s.storage.Etcd().Delete(t.Context(), below+name); err != nil {
			t.Fatal(err)
		}
	}
	create("d")
	cached("a", "c", "d")
	create("b")
	cached("a", "b", "c", "d")
}
