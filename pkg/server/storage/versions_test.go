package storage_test

import (
	"encoding/json"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	upstream "k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/server/bundle"
	"github.com/regent-project/regent/pkg/server/storage"
)

// An object that moves keeps the version that was shown of it, also over several moves in which it does not change.
func TestAnObjectKeepsItsVersionWhenItMoves(t *testing.T) {
	t.Parallel()
	const first, second, third = 7, 8, 9
	of := func(text []byte) string {
		var obj metav1.PartialObjectMetadata
		if err := json.Unmarshal(text, &obj); err != nil {
			t.Fatal(err)
		}
		return obj.Annotations["internal.regent.dev/version"]
	}
	for name, tc := range map[string]struct {
		stored string
		there  int64
		want   string
	}{
		"of a cluster that was made there":   {`{"metadata":{"name":"a"}}`, 0, "8.42"},
		"with annotations":                   {`{"metadata":{"name":"a","annotations":{"x":"y"}}}`, 0, "8.42"},
		"with none":                          {`{"metadata":{"name":"a","annotations":null}}`, 0, "8.42"},
		"of a cluster that had come":         {`{"metadata":{"name":"a"}}`, first, "8.7696581394474"},
		"that has not changed since it came": {`{"metadata":{"name":"a","annotations":{"internal.regent.dev/version":"7.5"}}}`, first, "8.5"},
		"with what is of another epoch":      {`{"metadata":{"name":"a","annotations":{"internal.regent.dev/version":"9.5"}}}`, first, "8.7696581394474"},
		"with what a user has made up":       {`{"metadata":{"name":"a","annotations":{"internal.regent.dev/version":"0.5"}}}`, 0, "8.42"},
	} {
		moved, err := storage.WithVersion([]byte(tc.stored), 42, tc.there, second)
		if err != nil || of(moved) != tc.want {
			t.Errorf("%s: %s (%v), want %s", name, moved, err, tc.want)
		}
	}
	for _, text := range []string{``, `[]`, `{"metadata":"x"}`, `{"metadata":{"annotations":[]}}`} {
		if _, err := storage.WithVersion([]byte(text), 42, first, third); !errors.Is(err, storage.ErrUnstorable) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What is put back to what it was before is changed by that: it has a new version.
func TestWhatIsPutBackHasNoVersionOfBefore(t *testing.T) {
	t.Parallel()
	moved, err := storage.WithVersion([]byte(`{"kind":"A","metadata":{"name":"a","annotations":{"x":"y"}}}`), 42, 0, 8)
	if err == nil {
		moved, err = storage.WithoutVersion(moved)
	}
	if want := `{"kind":"A","metadata":{"annotations":{"x":"y"},"name":"a"}}`; err != nil || string(moved) != want {
		t.Errorf("%s (%v), want %s", moved, err, want)
	}
}

func TestObjectsThatAreWatchedTogetherHaveOneResource(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"core/configmaps/default/a": "core/configmaps", "core/configmaps/": "core/configmaps", "apps/deployments/a": "apps/deployments",
		"custom/example.com/Widget/default/a": "custom/example.com/Widget", "custom/example.com/Widget/": "custom/example.com/Widget", "odd": "odd",
	} {
		if got := bundle.ResourceOf(key); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}

// A client may update an object without saying which version it knows: upstream then takes the one that is there. That
// is no revision of etcd where the cluster has an epoch: whoever took it for one would say that etcd has gone back.
func TestAVersionWithAnEpochIsTakenForNoRevision(t *testing.T) {
	w, _ := changingEpochs(t, epochOfRoot)
	key := "/core/configmaps/default/a"
	if err := w.objects.Create(w.admin, key, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}, nil, 0); err != nil {
		t.Fatal(err)
	}
	update := func(there runtime.Object, res upstream.ResponseMeta) (runtime.Object, *uint64, error) {
		next := there.DeepCopyObject()
		next.(*corev1.ConfigMap).Data = map[string]string{"a": "b"}
		// as upstream's registry does
		return next, nil, w.objects.Versioner().UpdateObject(next, res.ResourceVersion)
	}
	out := &corev1.ConfigMap{}
	if err := w.objects.GuaranteedUpdate(w.admin, key, out, false, nil, update, nil); err != nil {
		t.Fatal(err)
	}
	if seen := w.client.LastRevision(); seen > 1<<40 {
		t.Errorf("%d passes for a revision of etcd", seen)
	}
}

// Nobody but the shard says which version is shown of an object.
func TestUsersDoNotWriteTheVersionOfAMove(t *testing.T) {
	w, _ := changingEpochs(t, epochOfRoot)
	forged := map[string]string{"internal.regent.dev/version": "1000000.99", "kept": "yes"}
	key, out := "/core/configmaps/default/a", &corev1.ConfigMap{}
	if err := w.objects.Create(w.admin, key, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", Annotations: forged}}, out, 0); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		is := &corev1.ConfigMap{}
		if err := w.objects.Get(storage.AsStored(w.admin), key, upstream.GetOptions{}, is); err != nil {
			t.Fatal(err)
		}
		if is.Annotations["internal.regent.dev/version"] != "" || is.Annotations["kept"] != "yes" {
			t.Errorf("%s: stored with %v", when, is.Annotations)
		}
	}
	check("created")
	err := w.objects.GuaranteedUpdate(w.admin, key, out, false, nil, func(there runtime.Object, _ upstream.ResponseMeta) (runtime.Object, *uint64, error) {
		next := there.DeepCopyObject()
		next.(*corev1.ConfigMap).Annotations = forged
		return next, nil, nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	check("updated")
}
