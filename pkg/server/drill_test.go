package server

import (
	"errors"
	"strings"
	"testing"

	"github.com/regent-project/regent/pkg/server/bundle"
	"github.com/regent-project/regent/pkg/server/storage"
)

func storedIn(key, text string) storage.StoredIn {
	return storage.StoredIn{Cluster: "2xk", Stored: storage.Stored{Key: key, JSON: []byte(text)}}
}

// A drill writes and reads all in an etcd of its own, and finds what cannot be stored.
func TestADrillWritesAndReadsAll(t *testing.T) {
	const (
		settings = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"default","uid":"1","annotations":{"kcp.io/cluster":"2xk"}},"data":{"b":"c"}}`
		cluster  = `{"kind":"LogicalCluster","apiVersion":"core.kcp.io/v1alpha1","metadata":{"name":"cluster","uid":"2","annotations":{"kcp.io/cluster":"2xk"}},"spec":{"directlyDeletable":true},"status":{"phase":"Ready"}}`
	)
	for want, text := range map[string]string{"": settings, "it cannot be stored": `{"kind":"ConfigMap"}`} {
		_, _, err := Drill(t.Context(), config(t, t.TempDir()), func(take func(storage.StoredIn) error) error {
			return errors.Join(take(storedIn("core/configmaps/default/a", text)), take(storedIn(bundle.LogicalClusterKey, cluster)))
		})
		if err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("a drill with %s: %v, want %q", text, err, want)
		}
	}
}

// What is not there, what is different and what is too much is found.
func TestADrillFindsWhatIsNotAsItWas(t *testing.T) {
	d := drill{sums: map[string][32]byte{}}
	for key, text := range map[string]string{"lost": `{"a":1}`, "same": `{"a":1,"b":2,"c":{"d":null}}`, "other": `{"a":1}`} {
		if err := d.remember(storedIn(key, text)); err != nil {
			t.Fatal(err)
		}
	}
	for key, text := range map[string]string{"same": `{"b":2, "a":1}`, "other": `{"a":2}`, "new": `{}`, "damaged": "{"} {
		d.find(storedIn(key, text))
	}
	err := d.judge()
	for _, want := range []string{"1 objects were written and are not there (2xk lost)", "3 are not as they were written (2xk damaged, 2xk new, 2xk other)"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
