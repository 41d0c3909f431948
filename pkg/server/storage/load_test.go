package storage_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/regent-project/regent/pkg/server/storage"
	"github.com/regent-project/regent/test/etcdtest"
)

// page returns all that is stored, by place, without revisions.
func page(t *testing.T, client *storage.Client) map[string]storage.StoredIn {
	t.Helper()
	now, err := client.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]storage.StoredIn{}
	if more, err := client.ReadShardPage(t.Context(), now, "", 1<<30, func(in storage.StoredIn) error {
		in.Revision = 0
		out[in.Place] = in
		return nil
	}); err != nil || more {
		t.Fatal(more, err)
	}
	return out
}

// filled returns a client of an etcd with objects of two resources, some of them large, and one that has nothing.
func filled(t *testing.T) (full, empty *storage.Client) {
	t.Helper()
	full, empty = newClient(t, etcdtest.Start(t)), newClient(t, etcdtest.Start(t))
	for _, resource := range []string{"configmaps", "secrets"} {
		w := &writer{t, openOver(t, full, corev1.Resource(resource), true), "/core/" + resource}
		openOver(t, empty, corev1.Resource(resource), true)
		for n := range 130 {
			w.write(logicalcluster.Name(fmt.Sprint("c", n%3)), fmt.Sprint("n", n), strings.Repeat("x", n*100))
		}
		w.write("c0", "large", strings.Repeat("x", 1_000_000))
	}
	return full, empty
}

const markAt, mark = "/registry/.mark", "it is being filled"

func TestWhatIsLoadedIsWhatWasRead(t *testing.T) {
	full, empty := filled(t)
	want := page(t, full)
	err := empty.Load(t.Context(), markAt, mark, func(take func(storage.StoredIn) error) error {
		for _, in := range want {
			if err := take(in); err != nil {
				return err
			}
		}
		found, err := empty.Etcd().Get(t.Context(), markAt)
		if err != nil || len(found.Kvs) != 1 || string(found.Kvs[0].Value) != mark {
			t.Errorf("while it is filled the mark is %v, %v", found, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := page(t, empty); !reflect.DeepEqual(got, want) || len(got) != 262 {
		t.Errorf("%d objects are there, and %d were read", len(got), len(want))
	}
	if found, err := empty.Etcd().Get(t.Context(), markAt); err != nil || len(found.Kvs) != 0 {
		t.Errorf("the mark is still there: %v, %v", found, err)
	}
	if err := empty.Load(t.Context(), markAt, mark, func(func(storage.StoredIn) error) error { t.Error("it is filled"); return nil }); !errors.Is(err, storage.ErrNotEmpty) {
		t.Errorf("again: %v", err)
	}
}

// Whatever ends a load, the mark stays, and the error says which object it was.
func TestALoadThatFailsLeavesTheMark(t *testing.T) {
	one := storage.StoredIn{Cluster: "aa", Stored: storage.Stored{Key: "core/configmaps/default/x", JSON: []byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","namespace":"default"}}`)}}
	stopped := errors.New("stopped")
	with := func(change func(*storage.StoredIn)) storage.StoredIn {
		in := one
		change(&in)
		return in
	}
	for name, c := range map[string]struct {
		second storage.StoredIn
		err    error
		want   string
	}{
		"a resource that nobody stores":  {with(func(in *storage.StoredIn) { in.Key = "other/things/x" }), nil, "other/things/x of logical cluster aa"},
		"no object":                      {with(func(in *storage.StoredIn) { in.JSON = []byte("{") }), nil, "core/configmaps/default/x"},
		"a key that leads elsewhere":     {with(func(in *storage.StoredIn) { in.Key = "core/configmaps/../x" }), nil, "core/configmaps/../x"},
		"a cluster that leads elsewhere": {with(func(in *storage.StoredIn) { in.Cluster = "a/../b" }), nil, "a/../b"},
		"the caller":                     {one, stopped, "stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, etcdtest.Start(t))
			openOver(t, client, corev1.Resource("configmaps"), true)
			err := client.Load(t.Context(), markAt, mark, func(take func(storage.StoredIn) error) error {
				return errors.Join(take(c.second), c.err)
			})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want something with %q", err, c.want)
			}
			if found, err := client.Etcd().Get(t.Context(), markAt); err != nil || len(found.Kvs) != 1 {
				t.Errorf("the mark is not there: %v, %v", found, err)
			}
		})
	}
}

func TestALoadEndsWithItsContext(t *testing.T) {
	full, empty := filled(t)
	ctx, cancel := context.WithCancel(t.Context())
	given := 0
	err := empty.Load(ctx, markAt, mark, func(take func(storage.StoredIn) error) error {
		for _, in := range page(t, full) {
			if given++; given == 150 {
				cancel()
			}
			if err := take(in); err != nil {
				return err
			}
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v after %d objects", err, given)
	}
}
