package custom

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	"pgregory.net/rapid"
)

func TestWhatIsUsedIsKeptAndOneIsKeptHoweverLarge(t *testing.T) {
	r := newRecent[string, int](100, 400)
	for n := range 10 {
		r.add("a", fmt.Sprint(n), n, 50)
		if _, ok := r.use("a", "0"); !ok {
			t.Fatalf("the one that is used always has gone after %d others", n)
		}
	}
	if r.bytes != 200 || len(r.entries) != 4 { // the half that one cluster may have
		t.Errorf("%d entries of %d bytes are kept", len(r.entries), r.bytes)
	}
	if _, ok := r.use("a", "5"); ok {
		t.Error("one that was not used for long is kept")
	}
	if dropped := r.add("a", "9", 99, 800); len(dropped) != 3 {
		t.Errorf("%v are dropped for one that is larger than all bounds", dropped)
	}
	if value, ok := r.use("a", "9"); !ok || value != 99 || len(r.entries) != 1 {
		t.Errorf("kept %v: %d, of %d", ok, value, len(r.entries))
	}
	for n := range 300 {
		r.add(logicalcluster.Name(fmt.Sprint(n%3)), fmt.Sprint(n), n, 1)
	}
	if len(r.entries) != 100 {
		t.Errorf("%d entries are kept", len(r.entries))
	}
}

// A cluster that uses more than there is room for takes nothing from others, whether it has many or large ones, and
// whether they are its own or others use them, too.
func TestAClusterThatUsesMuchDropsItsOwn(t *testing.T) {
	for name, size := range map[string]int{"many": 1, "large": 3000} {
		r := newRecent[string, int](100, 10_000)
		quiet := []string{"q0", "q1", "q2", "shared"}
		for n, key := range quiet {
			r.add("quiet", key, n, 500)
		}
		for n := range 1000 {
			if _, ok := r.use("busy", "shared"); !ok {
				t.Fatalf("%s: what both use is dropped for %d of the busy one", name, n)
			}
			r.add("busy", fmt.Sprint(n), n, size)
		}
		for _, key := range quiet {
			if _, ok := r.use("quiet", key); !ok {
				t.Errorf("%s: %s of the quiet cluster is dropped", name, key)
			}
		}
		if a := r.accounts["busy"]; a.used.Len() > 50 || a.bytes > 5000 {
			t.Errorf("%s: the busy cluster has %d entries of %d bytes", name, a.used.Len(), a.bytes)
		}
	}
}

// What a hundred thousand clusters use alike is charged to one of them, and does not go from one to the next.
func TestWhatAllUseStaysWhereItIs(t *testing.T) {
	r := newRecent[string, int](100, 10_000)
	r.add("first", "shared", 1, 10)
	for n := range 1000 {
		if _, ok := r.use(logicalcluster.Name(fmt.Sprint(n)), "shared"); !ok || len(r.accounts) != 1 || r.accounts["first"] == nil {
			t.Fatalf("after %d others it is charged to %v", n, r.accounts)
		}
	}
}

func TestWhatIsKeptAddsUpWhateverIsUsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRecent[int, int](8, 100)
		kept := map[int]int{} // sizes
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			by, key := logicalcluster.Name(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "by")), rapid.IntRange(0, 15).Draw(t, "key")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				r.remove(key)
				delete(kept, key)
			case 1:
				if _, ok := r.use(by, key); ok != slices.Contains(keysOf(kept), key) {
					t.Fatalf("%d is kept: %v", key, ok)
				}
			default:
				size := rapid.IntRange(0, 150).Draw(t, "size")
				for _, gone := range r.add(by, key, key, size) {
					if gone == key {
						t.Fatalf("the newest is dropped")
					}
					delete(kept, gone)
				}
				kept[key] = size
			}
			entries, bytes, ofAccounts, inAccounts := 0, 0, 0, 0
			for _, size := range kept {
				entries, bytes = entries+1, bytes+size
			}
			for name, a := range r.accounts {
				if ofAccounts, inAccounts = ofAccounts+a.bytes, inAccounts+a.used.Len(); name != a.cluster || a.used.Len() == 0 {
					t.Fatalf("account %s of %s has %d entries", name, a.cluster, a.used.Len())
				}
				if a.used.Len() > 1 && (a.used.Len() > 8/ofOne || a.bytes > 100/ofOne) && r.entries[key] == nil {
					t.Fatalf("%s has %d entries of %d bytes", name, a.used.Len(), a.bytes)
				}
			}
			if len(r.entries) != entries || r.bytes != bytes || ofAccounts != bytes || inAccounts != entries || entries > 1 && (entries > 8 || bytes > 100) && kept[key] <= 100 {
				t.Fatalf("%d entries of %d bytes, in accounts %d of %d, want %d of %d", len(r.entries), r.bytes, inAccounts, ofAccounts, entries, bytes)
			}
		}
	})
}

func keysOf(m map[int]int) (keys []int) {
	for key := range m {
		keys = append(keys, key)
	}
	return keys
}
