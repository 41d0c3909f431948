package backups

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"filippo.io/age"
	"github.com/kcp-dev/logicalcluster/v3"

	"github.com/regent-project/regent/pkg/server/backup"
	"github.com/regent-project/regent/pkg/server/bundle"
)

var (
	dayFor     = flag.Duration("day", 20*time.Minute, "how long a backup follows a shard in TestAnySecondOfADayIsExtracted")
	dayEvery   = flag.Duration("day-base-every", 5*time.Minute, "how often it reads all")
	dayRate    = flag.Int("day-rate", 3, "how many objects are written a second")
	dayObjects = flag.Int("day-objects", 100, "how many objects each of two workspaces has")
	dayMoments = flag.Int("day-moments", 10, "how many seconds are extracted")
)

// A backup follows a shard for a day, in which two workspaces are written all the time. Whatever second is asked for,
// each object is what it was then.
func TestAnySecondOfADayIsExtracted(t *testing.T) {
	directory := t.TempDir()
	var d *day
	var began, end time.Time
	synctest.Test(t, func(t *testing.T) {
		d = newDay(t)
		stop := d.runs(directory, RunOptions{BaseEvery: *dayEvery, Keep: *dayFor + *dayEvery})
		time.Sleep(time.Second)
		for began = time.Now(); time.Since(began) < *dayFor; time.Sleep(time.Second) {
			d.do(d.writeSome)
		}
		end = time.Now()
		stop()
	})
	var took []time.Duration
	for range *dayMoments {
		at := began.Add(time.Duration(d.random.Int64N(int64(end.Sub(began)))))
		asked := time.Now()
		var file bytes.Buffer
		out, err := Extract(directory, &file, ExtractOptions{Path: logicalcluster.NewPath("root:aa"), At: at, Identities: []age.Identity{d.key}, SealTo: []age.Recipient{d.key.Recipient()}})
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(asked).Round(time.Millisecond))
		if late := at.Sub(out.Time); late < 0 || late > 2*time.Second {
			t.Errorf("at %v it is of %v", at, out.Time)
		}
		d.mustBe(t, &file, out.Revision)
	}
	slices.Sort(took)
	t.Logf("%d changes in %v; extracted in %v", d.revision, *dayFor, took)
}

// day is a shard that knows at which revisions each object was written.
type day struct {
	*shard
	when    map[string][]int64       // by cluster and name
	newest  map[string]backup.Record // by place
	changed []backup.Record          // since the last frame of changes
}

func newDay(t *testing.T) *day {
	d := &day{shard: newShard(t, 1), when: map[string][]int64{}, newest: map[string]backup.Record{}}
	for _, r := range d.written {
		d.newest[placeOf(r)] = r
	}
	for n := range *dayObjects {
		d.change("aa", n)
		d.change("bb", n)
	}
	d.ask = d.answerOfDay
	return d
}

func (d *day) change(cluster string, n int) {
	d.revision++
	name := fmt.Sprintf("n%d", n)
	text := fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":"default"},"data":{"revision":"%d","text":"%064x%s"}}`, name, d.revision, rand.Uint64(), strings.Repeat("x", 600)) //nolint:gosec // a test
	r := backup.Record{Cluster: cluster, Object: bundle.Object{Key: "core/configmaps/default/" + name, Revision: d.revision, Object: json.RawMessage(text)}}
	d.when[cluster+"/"+name] = append(d.when[cluster+"/"+name], d.revision)
	d.newest[placeOf(r)] = r
	d.changed = append(d.changed, r)
}

func (d *day) writeSome() {
	for range *dayRate {
		d.change([]string{"aa", "bb"}[d.random.IntN(2)], d.random.IntN(*dayObjects))
	}
}

// dayPage is how many objects a page of a base has.
const dayPage = 4000

// answerOfDay fills a frame.
func (d *day) answerOfDay(frame *backup.Frame, after string) (next string, err error) {
	some := d.changed
	switch {
	case frame.Kind == backup.Base:
		places := slices.Sorted(maps.Keys(d.newest))
		behind, found := slices.BinarySearch(places, after)
		if found {
			behind++
		}
		places = places[behind:]
		frame.First = strings.Join(strings.Split(places[0], "/")[:3], "/")
		if frame.More = len(places) > dayPage; frame.More {
			places = places[:dayPage]
			next = places[dayPage-1]
		}
		some = nil
		for _, place := range places {
			some = append(some, d.newest[place])
		}
	case after == "":
		frame.After, some, d.changed = d.revision, nil, nil
	default:
		if frame.After, err = strconv.ParseInt(after, 10, 64); err != nil {
			return "", err
		}
		d.changed = nil
	}
	for _, r := range some {
		if err := frame.Add(r); err != nil {
			return "", err
		}
	}
	return next, nil
}

// mustBe compares a bundle with what workspace aa was at a revision.
func (d *day) mustBe(t *testing.T, file *bytes.Buffer, revision int64) {
	t.Helper()
	all, err := bundle.Open(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	if err := all[0].Each(func(o bundle.Object) error {
		name := filepath.Base(o.Key)
		when, ok := d.when["aa/"+name]
		if !ok {
			return nil
		}
		n, there := slices.BinarySearch(when, revision)
		if !there {
			n--
		}
		if seen++; o.Revision != when[n] || !strings.Contains(string(o.Object), fmt.Sprintf(`"revision":"%d"`, when[n])) {
			t.Errorf("%s at revision %d is of %d, and was written at %d", name, revision, o.Revision, when[n])
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if seen != *dayObjects {
		t.Errorf("%d objects at revision %d, want %d", seen, revision, *dayObjects)
	}
}
