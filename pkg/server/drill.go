package server

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/build"
	"github.com/regent-project/regent/pkg/server/bundle"
	"github.com/regent-project/regent/pkg/server/storage"
)

const (
	// drillPageBytes is how many bytes of objects are read at once.
	drillPageBytes = 4 << 20
	// maxNamed is how many objects an error names.
	maxNamed = 5
)

// Drill is Load into an etcd that is thrown away, which the Config must name: what was written is read back, and
// compared. It returns how long each took. An error names objects that are not as they were.
func Drill(ctx context.Context, cfg Config, each func(take func(storage.StoredIn) error) error) (loading, reading time.Duration, err error) {
	err = withStore(ctx, cfg, func(store *store) (err error) {
		d := drill{sums: map[string][sha256.Size]byte{}}
		began := time.Now()
		if err := load(ctx, store, cfg.EtcdPrefix, func(take func(storage.StoredIn) error) error {
			return each(func(in storage.StoredIn) error {
				if err := d.remember(in); err != nil {
					return err
				}
				return take(in)
			})
		}); err != nil {
			return err
		}
		loading = time.Since(began)
		klog.FromContext(ctx).Info("All was written, and is read back now", "objects", len(d.sums))
		began = time.Now()
		err = d.compare(ctx, store.Client)
		reading = time.Since(began)
		return err
	})
	return loading, reading, err
}

// drill knows what was written.
type drill struct {
	sums   map[string][sha256.Size]byte
	others []string // what is there, and is not as it was
}

func nameOf(in storage.StoredIn) string { return in.Cluster.String() + " " + in.Key }

func (d *drill) remember(in storage.StoredIn) (err error) {
	d.sums[nameOf(in)], err = sumOf(in)
	return err
}

// compare reads everything.
func (d *drill) compare(ctx context.Context, from *storage.Client) error {
	for more, last := true, ""; more; {
		revision, err := from.Revision(ctx) // nobody writes, and old ones are compacted
		if err != nil {
			return fmt.Errorf("read back what was written: %w", err)
		}
		more, err = from.ReadShardPage(ctx, revision, last, drillPageBytes, func(in storage.StoredIn) error {
			last = in.Place
			d.find(in)
			return nil
		})
		if err != nil {
			return fmt.Errorf("read back what was written: %w", err)
		}
	}
	return d.judge()
}

// judge returns an error if something is not as it was written.
func (d *drill) judge() error {
	lost := slices.Sorted(maps.Keys(d.sums))
	slices.Sort(d.others)
	if len(lost)+len(d.others) > 0 {
		return fmt.Errorf("%d objects were written and are not there (%s), and %d are not as they were written (%s): no shard can be made of it by this version (%s)", len(lost), some(lost), len(d.others), some(d.others), build.Info().GitVersion)
	}
	return nil
}

// find compares an object with what was written.
func (d *drill) find(in storage.StoredIn) {
	was, ok := d.sums[nameOf(in)]
	delete(d.sums, nameOf(in))
	is, err := sumOf(in)
	if !ok || err != nil || was != is {
		d.others = append(d.others, nameOf(in))
	}
}

// sumOf returns the sum of what an object says, in whatever order. What is empty says nothing: a version may write it,
// and another one leave it out. That of a LogicalCluster is without what a load makes anew.
func sumOf(in storage.StoredIn) (sum [sha256.Size]byte, err error) {
	var obj map[string]any
	if err := utiljson.Unmarshal(in.JSON, &obj); err != nil { // numbers as they are
		return sum, fmt.Errorf("%s is no object: %w", nameOf(in), err)
	}
	if in.Key == bundle.LogicalClusterKey && !clusters.IsSystem(in.Cluster) {
		unstructured.RemoveNestedField(obj, "metadata", "annotations", clusters.EpochAnnotation)
		unstructured.RemoveNestedField(obj, "metadata", "annotations", clusters.BuiltInAnnotation)
	}
	text, err := json.Marshal(withoutEmpty(obj))
	if err != nil {
		return sum, fmt.Errorf("%s is no object: %w", nameOf(in), err)
	}
	return sha256.Sum256(text), nil
}

// withoutEmpty removes fields that are empty, and returns nil if nothing is left.
func withoutEmpty(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, field := range v {
			if v[key] = withoutEmpty(field); v[key] == nil {
				delete(v, key)
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		for i := range v {
			v[i] = withoutEmpty(v[i])
		}
		if len(v) == 0 {
			return nil
		}
	}
	return value
}

// some names some of many.
func some(names []string) string {
	if len(names) > maxNamed {
		return strings.Join(names[:maxNamed], ", ") + ", ..."
	}
	return strings.Join(names, ", ")
}
