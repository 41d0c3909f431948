package storage_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	upstream "k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/storage"
	"github.com/regent-project/regent/test/etcdtest"
)

// pages reads all of a cluster in pages of some bytes each, and returns the JSON by key. It calls between two pages.
func pages(t *testing.T, client *storage.Client, cluster logicalcluster.Name, revision int64, size int, between func()) map[string]string {
	t.Helper()
	all, after := map[string]string{}, ""
	for more := true; more; between() {
		read := 0
		var err error
		more, err = client.ReadPage(t.Context(), cluster, revision, after, size, func(s storage.Stored) error {
			if s.Fault != nil {
				t.Errorf("%s: %v", s.Key, s.Fault)
			}
			if s.Key <= after {
				t.Fatalf("%s follows %s", s.Key, after)
			}
			all[s.Key], after = string(s.JSON), s.Key
			read++
			return nil
		})
		if err != nil || more && read == 0 {
			t.Fatalf("%d objects, %v", read, err)
		}
	}
	return all
}

// However large its pages are, and whatever is written meanwhile, a cluster is read as it was at one revision, and no
// other cluster's objects with it.
func TestAClusterIsReadAsItWasAtOneRevision(t *testing.T) {
	client := newClient(t, etcdtest.Start(t))
	layers := map[string]*writer{}
	for _, resource := range []string{"configmaps", "secrets"} {
		layers[resource] = &writer{t, openOver(t, client, corev1.Resource(resource), true), "/core/" + resource}
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	want := map[string]bool{}
	for n := range 120 {
		for _, resource := range []string{"configmaps", "secrets"} {
			name := fmt.Sprintf("n%03d", n)
			for _, cluster := range []logicalcluster.Name{"aa", "aab", "bb"} {
				layers[resource].write(cluster, name, strings.Repeat("x", random.IntN(500)))
			}
			want["core/"+resource+"/default/"+name] = true
		}
	}
	revision, err := client.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	whole := pages(t, client, "aab", revision, 1<<30, func() {})
	if len(whole) != len(want) {
		t.Fatalf("%d objects, want %d", len(whole), len(want))
	}
	for key, json := range whole {
		if !want[key] || !strings.Contains(json, `"kcp.io/cluster":"aab"`) || !strings.HasPrefix(json, `{"kind":"ConfigMap","apiVersion":"v1"`) {
			t.Fatalf("%s: %.100s", key, json)
		}
	}
	later := 0
	for _, size := range []int{1, 700, 9_000, 100_000} {
		got := pages(t, client, "aab", revision, size, func() {
			later++
			layers["secrets"].write("aab", fmt.Sprintf("later%d", later), "")
			layers["configmaps"].write("aab", fmt.Sprintf("n%03d", later%120), fmt.Sprint(later))
		})
		if !reflect.DeepEqual(got, whole) {
			t.Errorf("pages of %d bytes have other objects", size)
		}
	}
}

// writer is a resource whose objects are written over and over.
type writer struct {
	t      *testing.T
	layers upstream.Interface
	prefix string
}

func (w *writer) write(cluster logicalcluster.Name, name, value string) {
	w.t.Helper()
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"value": value}}
	update := upstream.SimpleUpdate(func(runtime.Object) (runtime.Object, error) { return obj, nil })
	if err := w.layers.GuaranteedUpdate(clusters.With(w.t.Context(), cluster), w.prefix+"/default/"+name, &corev1.ConfigMap{}, true, nil, update, nil); err != nil {
		w.t.Fatal(err)
	}
}

func TestWhatIsNoObjectIsNamedAndHidesNothing(t *testing.T) {
	client := newClient(t, etcdtest.Start(t))
	w := &writer{t, openOver(t, client, corev1.Resource("configmaps"), true), "/core/configmaps"}
	w.write("aa", "good", "x")
	for key, value := range map[string]string{"bad": "\x00\x01 no object", "worse": "", "json": `{"kind":"ConfigMap","apiVersion":"v1"`} {
		if _, err := client.Etcd().Put(t.Context(), client.Prefix()+"/core/configmaps/aa/default/"+key, value); err != nil {
			t.Fatal(err)
		}
	}
	revision, err := client.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	faults := map[string]bool{}
	if _, err := client.ReadPage(t.Context(), "aa", revision, "", 1<<20, func(s storage.Stored) error {
		faults[strings.TrimPrefix(s.Key, "core/configmaps/default/")] = s.Fault != nil && s.JSON == nil
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if want := map[string]bool{"good": false, "bad": true, "worse": true, "json": true}; !reflect.DeepEqual(faults, want) {
		t.Errorf("unreadable: %v, want %v", faults, want)
	}
}

func TestARevisionThatEtcdDoesNotHaveIsSaid(t *testing.T) {
	client := newClient(t, etcdtest.Start(t))
	w := &writer{t, openOver(t, client, corev1.Resource("configmaps"), true), "/core/configmaps"}
	w.write("aa", "x", "1")
	old, err := client.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.write("aa", "x", "2")
	now, err := client.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Etcd().Compact(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	for _, revision := range []int64{old, now + 100} {
		if _, err := client.ReadPage(t.Context(), "aa", revision, "", 1, func(storage.Stored) error { return nil }); !errors.Is(err, storage.ErrCompacted) {
			t.Errorf("revision %d: %v", revision, err)
		}
	}
	if got := pages(t, client, "aa", now, 1, func() {}); len(got) != 1 {
		t.Errorf("%d objects", len(got))
	}
}
