package storage_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	upstream "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/feature"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/storage"
	"github.com/regent-project/regent/test/etcdtest"
	"github.com/regent-project/regent/test/until"
)

func (w *writer) remove(cluster logicalcluster.Name, name string) {
	w.t.Helper()
	valid := upstream.ValidateAllObjectFunc
	err := w.layers.Delete(clusters.With(w.t.Context(), cluster), w.prefix+"/default/"+name, &corev1.ConfigMap{}, nil, valid, nil, upstream.DeleteOptions{})
	if err != nil && !upstream.IsNotFound(err) {
		w.t.Fatal(err)
	}
}

// waitUntilProgressIsKnown waits until upstream has asked etcd for its version.
func waitUntilProgressIsKnown(t *testing.T) {
	t.Helper()
	until.So(t, "etcd's version is known", func() bool { return feature.DefaultFeatureSupportChecker.Supports(upstream.RequestWatchProgress) })
}

// view is what pages and changes tell of a shard: what is stored at each place.
type view map[string]storage.StoredIn

// learn takes what is newer than what is known.
func (v view) learn(in storage.StoredIn) error {
	if was, ok := v[in.Place]; !ok || was.Revision < in.Revision {
		v[in.Place] = in
	}
	return nil
}

// text returns what is stored, with its revision.
func (v view) text() map[string]string {
	out := map[string]string{}
	for place, in := range v {
		if !in.Gone {
			out[place] = fmt.Sprint(in.Cluster, in.Revision, in.Key, string(in.JSON), in.Fault)
		}
	}
	return out
}

// Pages that are each of another revision, and the changes since the first one, make what is stored, whatever was
// written between them and however small they are.
func TestPagesOfAnyRevisionsAndChangesMakeTheShard(t *testing.T) {
	client := newClient(t, etcdtest.Start(t))
	var writers []*writer
	for _, resource := range []string{"configmaps", "secrets"} {
		writers = append(writers, &writer{t, openOver(t, client, corev1.Resource(resource), true), "/core/" + resource})
	}
	waitUntilProgressIsKnown(t)
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // a test
	write := func() {
		for range random.IntN(12) {
			w, in, name := writers[random.IntN(2)], logicalcluster.Name([]string{"aa", "aab", "bb"}[random.IntN(3)]), fmt.Sprint("n", random.IntN(20))
			if random.IntN(3) == 0 {
				w.remove(in, name)
			} else {
				w.write(in, name, fmt.Sprint(random.Int()))
			}
		}
		// what is no object of the shard's is no change of it
		for _, key := range []string{"/elsewhere/x", client.Prefix() + "/.own/x", client.Prefix() + "/core/configmaps/nowhere"} {
			if _, err := client.Etcd().Put(t.Context(), key, "x"); err != nil {
				t.Fatal(err)
			}
		}
	}
	revision := func() int64 {
		r, err := client.Revision(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for range 6 {
		write()
		is, began, place := view{}, revision(), ""
		for more := true; more; write() {
			var err error
			more, err = client.ReadShardPage(t.Context(), revision(), place, 1+random.IntN(4_000), func(in storage.StoredIn) error {
				if in.Place <= place {
					t.Fatalf("%s follows %s", in.Place, place)
				}
				place = in.Place
				return is.learn(in)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		now := revision()
		for began < now {
			through, err := client.ReadChanges(t.Context(), began, now, 1+random.IntN(4_000), is.learn)
			if err != nil || through <= began || through > now {
				t.Fatalf("changes behind %d up to %d: up to %d, %v", began, now, through, err)
			}
			began = through
		}
		write()
		want := view{}
		if more, err := client.ReadShardPage(t.Context(), now, "", 1<<30, want.learn); err != nil || more {
			t.Fatal(more, err)
		}
		if got, want := is.text(), want.text(); !reflect.DeepEqual(got, want) || len(got) == 0 {
			t.Fatalf("at %d: %d objects, want %d", now, len(got), len(want))
		}
	}
}

func TestChangesThatEtcdDoesNotHaveAreSaid(t *testing.T) {
	client := newClient(t, etcdtest.Start(t))
	w := &writer{t, openOver(t, client, corev1.Resource("configmaps"), true), "/core/configmaps"}
	waitUntilProgressIsKnown(t)
	first, err := client.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		w.write("aa", "x", fmt.Sprint(n))
	}
	last, err := client.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Etcd().Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	none := func(storage.StoredIn) error { t.Error("a change was read"); return nil }
	if _, err := client.ReadChanges(t.Context(), first, last, 1<<20, none); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("behind %d of %d: %v, want %v", first, last, err, storage.ErrCompacted)
	}
	refused := errors.New("refused")
	w.write("aa", "x", "last")
	if _, err := client.ReadChanges(t.Context(), last, last+1, 1<<20, func(storage.StoredIn) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("%v, want what visit returned", err)
	}
	if through, err := client.ReadChanges(t.Context(), last+1, last, 1<<20, none); err != nil || through != last+1 {
		t.Errorf("nothing to read: %d, %v", through, err)
	}
}
