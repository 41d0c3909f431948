package releases_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/regent-project/regent/test/built"
	"github.com/regent-project/regent/test/e2e/harness"
	"github.com/regent-project/regent/test/releases"
)

var before = flag.String("before", "", "the program of a release, below bin, that reads what this version has written: make upgrade gives it")

func TestMain(m *testing.M) {
	flag.Parse()
	programs := []string{"regent", "etcd", "etcdctl"}
	if *before != "" {
		programs = append(programs, *before)
	}
	if err := built.Programs(programs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// changes are what this version serves in another way than a release, on purpose: what, and why.
var changes = map[string]string{}

// own reports whether an object is the election's: each leader writes it.
func own(o releases.Object) bool {
	if o.Cluster != "system:admin" {
		return false
	}
	switch o.Resource {
	case "leases":
		return true
	case "configmaps":
		return strings.HasPrefix(o.Name(), "kube-system/regent-terms-")
	}
	return o.Resource == "events"
}

// reader is a shard with what a release has stored.
type reader struct {
	*testing.T
	etcd    *clientv3.Client
	shard   *harness.Shard
	replica *harness.Replica
	said    map[string]bool // which of changes were needed
}

// I15: what a release has stored is served by this version, every object with every field. Each can be changed, and is
// read back; what is stored then is what the release stored, with the change. With -before, the release itself reads
// and changes it, and then this version once more.
func TestWhatAReleaseHasStoredIsServedChangedAndReadBackI15(t *testing.T) {
	versions, err := releases.Versions()
	if err != nil {
		t.Fatal(err)
	}
	if len(versions) == 0 {
		t.Fatal("no release has its data here: make release-data makes them")
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			data, err := releases.Read(version)
			if err != nil {
				t.Fatal(err)
			}
			etcd, shard := data.Restore(t)
			r := &reader{T: t, etcd: etcd.Client(t), shard: shard, said: map[string]bool{}}
			stored := r.stored(data.Encryption)
			r.start("regent")
			r.serves(data.Served)
			r.tells(data.Terms)
			served := r.change(data.Served, "by this version")
			r.storesAs(stored, r.stored(data.Encryption))
			if *before != "" {
				for _, next := range []struct{ program, change string }{{*before, "by the release"}, {"regent", "by this version again"}} {
					r.stop()
					r.start(next.program)
					r.serves(served)
					served = r.change(served, next.change)
				}
			}
			r.stop()
			for what := range changes {
				if !r.said[what] {
					t.Errorf("%s is among the changes, and is served as it was", what)
				}
			}
		})
	}
}

// Each release keeps what it has stored: make release-data, with the line in releases.txt that names its commit.
func TestEachReleaseHasItsData(t *testing.T) {
	record, err := os.ReadFile("releases.txt")
	if err != nil {
		t.Fatal(err)
	}
	kept, err := releases.Versions()
	if err != nil {
		t.Fatal(err)
	}
	var recorded []string
	for line := range strings.Lines(string(record)) {
		if version, _, ok := strings.Cut(line, " "); ok && strings.HasPrefix(version, "v") {
			recorded = append(recorded, version)
		}
	}
	if slices.Sort(recorded); !slices.Equal(recorded, kept) {
		t.Errorf("releases.txt has the releases %q, and data are kept of %q: make release-data RELEASE=<version>", recorded, kept)
	}
}

// start starts a replica of a program, and returns when it leads.
func (r *reader) start(program string) {
	r.Helper()
	if r.replica == nil {
		r.replica = r.shard.Launch(r, "a")
	} else {
		r.replica.Binary = harness.Binary(program)
		r.replica.Again()
	}
	r.replica.WaitReady()
	harness.Eventually(r, program+" leads", r.replica.Leads)
}

func (r *reader) stop() {
	r.Helper()
	r.replica.Signal(syscall.SIGTERM)
	if code := r.replica.Wait(); code != 0 {
		r.Errorf("the replica ended with %d", code)
	}
}

// served is what the replica serves, by name.
func (r *reader) served() map[string]releases.Object {
	r.Helper()
	served, _, err := releases.Serves(r.Context(), r.replica.AdminConfig)
	if err != nil {
		r.Fatal(err)
	}
	out := map[string]releases.Object{}
	for _, o := range served {
		out[o.String()] = o
	}
	return out
}

// serves compares what the replica serves with what another one did.
func (r *reader) serves(was releases.Served) {
	r.Helper()
	is := r.served()
	for _, o := range was {
		if !own(o) {
			r.compare(o, is[o.String()], "")
		}
	}
}

// compare says which fields of an object are not as they were, but for the annotation changed and what is written with
// it.
func (r *reader) compare(was, is releases.Object, change string) {
	r.Helper()
	if is.Object == nil {
		if what := was.String(); changes[what] == "" {
			r.Errorf("%s is not served", what)
		} else {
			r.said[what] = true
		}
		return
	}
	a, b := fields(was.Object), fields(is.Object)
	if change != "" {
		a[annotations+changed] = change
		for _, m := range []map[string]any{a, b} {
			delete(m, "metadata.resourceVersion")
			maps.DeleteFunc(m, func(field string, _ any) bool { return strings.HasPrefix(field, "metadata.managedFields") })
		}
	}
	for _, field := range slices.Sorted(maps.Keys(union(a, b))) {
		if reflect.DeepEqual(a[field], b[field]) {
			continue
		}
		if what := was.String() + " " + field; changes[what] == "" {
			r.Errorf("%s: %s was %v, and is %v", was, field, a[field], b[field])
		} else {
			r.said[what] = true
		}
	}
}

const (
	annotations = "metadata.annotations."
	changed     = "example.com/changed"
)

// fields are the values of all fields of an object, by their paths.
func fields(of map[string]any) map[string]any {
	out := map[string]any{}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for name, v := range value {
				walk(path+"."+name, v)
			}
			if len(value) > 0 {
				return
			}
		case []any:
			for n, v := range value {
				walk(fmt.Sprintf("%s[%d]", path, n), v)
			}
			if len(value) > 0 {
				return
			}
		case int64: // of a client; what is read from a file has none
			out[path[1:]] = float64(value)
			return
		}
		out[path[1:]] = value
	}
	walk("", of)
	return out
}

func union(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// change changes each object in each version in which it is served, and compares what is read back. It returns that.
func (r *reader) change(was releases.Served, by string) (now releases.Served) {
	r.Helper()
	last := map[string]string{} // by object
	for n, o := range was {
		if own(o) {
			continue
		}
		client, err := dynamic.NewForConfig(r.replica.AdminConfig(o.Cluster))
		if err != nil {
			r.Fatal(err)
		}
		value := fmt.Sprintf("%s %d", by, n)
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, changed, value)
		_, err = o.Of(client).Patch(r.Context(), path.Base(o.Name()), types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "changes"})
		switch {
		case err == nil:
			last[o.UID()] = value
		// and stored nowhere: see storesAs
		case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "it is built into all logical clusters"):
		default:
			r.Errorf("%s cannot be changed: %v", o, err)
		}
	}
	if len(last) < 40 {
		r.Errorf("only %d objects could be changed", len(last))
	}
	is := r.served()
	for _, o := range was {
		if own(o) {
			continue
		}
		r.compare(o, is[o.String()], last[o.UID()])
		now = append(now, is[o.String()])
	}
	return now
}
