package backups

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"filippo.io/age"
	"github.com/kcp-dev/logicalcluster/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/server/backup"
	"github.com/regent-project/regent/pkg/server/bundle"
	"github.com/regent-project/regent/pkg/server/storage"
)

// shard is one with an etcd of its own that keeps each change, and answers as a replica does.
type shard struct {
	t      *testing.T
	key    *age.X25519Identity
	random *rand.Rand

	mu        sync.Mutex
	name      string
	revision  int64
	written   []backup.Record // in the order of their revisions
	wrote     time.Time       // when the last one was
	compacted int64
	etcd      uint64
	raft      uint64
	fails     func() error // what is answered; nil: a frame
	// ask fills a frame in place of base and changes.
	ask func(frame *backup.Frame, after string) (next string, err error)
}

func newShard(t *testing.T, seed uint64) *shard {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	s := &shard{t: t, key: key, random: rand.New(rand.NewPCG(seed, 1)), name: "root", revision: 1, raft: 2} //nolint:gosec // a test
	for _, cluster := range []string{"aa", "aa-b", "bb"} {
		s.put(cluster, logicalClusterKey, fmt.Sprintf(`{"metadata":{"annotations":{"kcp.io/path":"root:%s"}}}`, cluster))
	}
	return s
}

func (s *shard) put(cluster, key, text string) {
	s.revision++
	r := backup.Record{Cluster: cluster, Object: bundle.Object{Key: key, Revision: s.revision}, Secret: strings.HasPrefix(key, "core/secrets/")}
	if r.Gone = text == ""; !r.Gone {
		r.Object.Object = json.RawMessage(text)
	}
	s.written, s.wrote = append(s.written, r), time.Now()
}

// write changes up to n objects.
func (s *shard) write(n int) {
	for range s.random.IntN(n + 1) {
		cluster, resource, text := []string{"aa", "aa-b", "bb"}[s.random.IntN(3)], []string{"configmaps", "secrets"}[s.random.IntN(2)], ""
		if s.random.IntN(3) > 0 {
			text = fmt.Sprintf(`{"is":%d}`, s.random.Int())
		}
		s.put(cluster, fmt.Sprintf("core/%s/default/n%d", resource, s.random.IntN(9)), text)
		if s.random.IntN(3) == 0 {
			s.revision++ // of another shard on the etcd
		}
	}
}

// at returns what was stored at a revision, by place.
func (s *shard) at(revision int64) map[string]backup.Record {
	is := newest{}
	for _, r := range s.written {
		if r.Revision <= revision {
			is.learn(placeOf(r), r)
		}
	}
	return is.there()
}

func placeOf(r backup.Record) string {
	parts := strings.SplitN(r.Key, "/", 3)
	return parts[0] + "/" + parts[1] + "/" + r.Cluster + "/" + parts[2]
}

// RoundTrip implements http.RoundTripper.
func (s *shard) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, err := s.answer(req)
	code := http.StatusOK
	var refused apierrors.APIStatus
	if errors.As(err, &refused) {
		is := refused.Status()
		is.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		code = int(is.Code)
		if text, err = json.Marshal(is); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)), Request: req}, nil
}

func (s *shard) answer(req *http.Request) ([]byte, error) {
	if s.fails != nil {
		if err := s.fails(); err != nil {
			return nil, err
		}
	}
	kind, after := backup.Kind(req.URL.Query().Get("of")), req.URL.Query().Get("after")
	frame, err := backup.NewFrame(kind, []age.Recipient{s.key.Recipient()})
	if err != nil {
		return nil, err
	}
	frame.Shard, frame.Etcd, frame.Raft, frame.Revision, frame.Time = s.name, s.etcd, s.raft, s.revision, time.Now().UTC()
	next := ""
	switch {
	case s.ask != nil:
		next, err = s.ask(frame, after)
	case kind == backup.Base:
		next, err = s.base(frame, after)
		s.write(3) // before the next one
	default:
		err = s.changes(frame, after)
	}
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.NewEncoder(&out).Encode(backup.Answer{Next: next}); err != nil {
		return nil, err
	}
	_, err = frame.WriteTo(&out)
	return out.Bytes(), err
}

// base fills a frame with up to three objects.
func (s *shard) base(frame *backup.Frame, after string) (next string, err error) {
	is := s.at(s.revision)
	for i, place := range slices.Sorted(maps.Keys(is)) {
		switch {
		case place <= after:
			continue
		case frame.First == "":
			frame.First = strings.Join(strings.Split(place, "/")[:3], "/")
		}
		if err := frame.Add(is[place]); err != nil {
			return "", err
		}
		if next, frame.More = place, i+1 < len(is); s.random.IntN(3) == 0 && frame.More {
			return next, nil
		}
	}
	return "", nil
}

func (s *shard) changes(frame *backup.Frame, text string) error {
	if text == "" {
		frame.After = s.revision
		return nil
	}
	after, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return err
	}
	if after < s.compacted {
		return apierrors.NewResourceExpired("etcd has them no more")
	}
	if after > s.revision {
		return apierrors.NewConflict(schema.GroupResource{Resource: "backup"}, "", errors.New("etcd was restored"))
	}
	frame.After = after
	for _, r := range s.written {
		if r.Revision <= after {
			continue
		}
		if err := frame.Add(r); err != nil {
			return err
		}
		if s.random.IntN(20) == 0 && r.Revision < s.revision { // it is enough for one frame
			frame.Revision, frame.Time = r.Revision, time.Time{}
			return nil
		}
	}
	return nil
}

func (s *shard) client() rest.Interface {
	config := &rest.Config{Host: "https://shard", ContentConfig: rest.ContentConfig{NegotiatedSerializer: scheme.Codecs.WithoutConversion(), GroupVersion: &schema.GroupVersion{Version: "v1"}}, QPS: -1}
	client, err := rest.RESTClientForConfigAndClient(config, &http.Client{Transport: s})
	if err != nil {
		s.t.Fatal(err)
	}
	return client
}

// do changes the shard while nobody asks it.
func (s *shard) do(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// runs starts a run. stop ends it, and fails if it has ended before; the end of the test does so at the latest.
func (s *shard) runs(directory string, o RunOptions) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, s.client(), directory, o) }()
	stop = sync.OnceFunc(func() {
		synctest.Wait()
		select {
		case err := <-ended:
			s.t.Errorf("the run has ended: %v", err)
		default:
			cancel()
			if err := <-ended; err != nil {
				s.t.Error(err)
			}
		}
	})
	s.t.Cleanup(stop)
	return stop
}

// compare extracts each workspace as it was at a time, and compares it with what the etcd had.
func (s *shard) compare(directory string, when time.Time) *moment {
	s.t.Helper()
	all, err := readContents(directory)
	if err != nil {
		s.t.Fatal(err)
	}
	m, err := all.at(when)
	if err != nil {
		s.t.Fatal(err)
	}
	if m.time.After(when) {
		s.t.Fatalf("%v is behind %v", m.time, when)
	}
	for _, name := range []string{[]string{"aa", "aa-b", "bb"}[s.random.IntN(3)]} {
		want := map[string]backup.Record{}
		for _, r := range s.at(m.revision) {
			if r.Cluster == name {
				want[r.Key] = r
			}
		}
		cluster, path, err := m.find(ExtractOptions{Path: logicalcluster.NewPath("root:" + name), Identities: []age.Identity{s.key}})
		if err != nil || cluster != name || path != "root:"+name {
			s.t.Fatalf("%s is found as %s, %s: %v", name, cluster, path, err)
		}
		got, err := m.read(name, []age.Identity{s.key})
		if err != nil {
			s.t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			s.t.Fatalf("%s at %v, revision %d of base %s: %v, want %v", name, when, m.revision, filepath.Base(m.base.name), got, want)
		}
	}
	return m
}

// cut removes the end of the newest file of changes, as a kill in the middle of a write leaves it.
func (s *shard) cut(directory string) {
	names, err := filepath.Glob(filepath.Join(directory, string(backup.Changes)+"-*"+extension))
	if err != nil || len(names) == 0 {
		return
	}
	name := slices.Max(names)
	info, err := os.Stat(name)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := os.Truncate(name, max(0, info.Size()-int64(s.random.IntN(300)))); err != nil {
		s.t.Fatal(err)
	}
}

// Whatever happens to the shard and to whoever follows it, what is extracted is what etcd had at that revision, and
// while there was a run that reached the shard it is no older than a second.
func TestAnyTimeThatABackupNamesIsWhatEtcdHad(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { followAtRandom(t, newShard(t, seed)) })
		})
	}
}

func followAtRandom(t *testing.T, s *shard) {
	random := rand.New(rand.NewPCG(uint64(s.random.Int()), 2)) //nolint:gosec // a test; that of the shard is used by who asks it
	directory := t.TempDir()
	o := RunOptions{BaseEvery: time.Minute, Keep: time.Hour}
	stop := s.runs(directory, o)
	time.Sleep(2 * time.Second)
	followed := []time.Time{}
	for range 25 {
		switch random.IntN(12) {
		case 0: // it is ended
			stop()
			if random.IntN(2) == 0 {
				s.cut(directory)
			}
			s.do(func() { s.write(9) })
			stop = s.runs(directory, o)
		case 1: // it cannot be reached
			s.do(func() { s.fails = func() error { return errors.New("no route") } })
			time.Sleep(time.Duration(random.IntN(10)) * time.Second)
			s.do(func() { s.fails = nil })
		case 2: // what it has not read is compacted
			stop()
			s.do(func() { s.write(9); s.compacted = s.revision })
			stop = s.runs(directory, o)
			time.Sleep(time.Second)
		case 3:
			time.Sleep(time.Duration(random.IntN(90)) * time.Second)
		}
		s.do(func() { s.write(5) })
		time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
		time.Sleep(1200 * time.Millisecond)
		synctest.Wait()
		now := time.Now()
		s.do(func() {
			m := s.compare(directory, now)
			if lacks := s.written[len(s.written)-1].Revision > m.revision && now.Sub(s.wrote) > time.Second; lacks || now.Sub(m.time) > idleFor+time.Second {
				t.Errorf("at %v the last time is %v, and the revision %d of %d", now, m.time, m.revision, s.revision)
			}
		})
		followed = append(followed, now)
	}
	stop()
	all, err := readContents(directory)
	if err != nil {
		t.Fatal(err)
	}
	for _, when := range followed[15:] {
		if _, err := all.at(when); err == nil {
			s.compare(directory, when)
		}
	}
	whole, err := OpenShard(directory, time.Time{}, []age.Identity{s.key}, "root")
	if err != nil {
		t.Fatal(err)
	}
	given, want := map[string]string{}, map[string]string{}
	if err := whole.Each(func(in storage.StoredIn) error {
		if _, twice := given[in.Cluster.String()+"/"+in.Key]; twice {
			t.Errorf("%s is given twice", in.Key)
		}
		given[in.Cluster.String()+"/"+in.Key] = string(in.JSON)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, r := range s.at(whole.Revision) {
		want[r.Cluster+"/"+r.Key] = string(r.Object.Object)
	}
	if !reflect.DeepEqual(given, want) || whole.Objects != len(want) {
		t.Errorf("the whole shard at %d: %d objects, want %d", whole.Revision, len(given), len(want))
	}
	if found, err := Inspect(directory, true); err != nil || len(found.Spans) == 0 || found.Shard != "root" {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestWhatIsTooOldIsRemovedAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, directory, o := newShard(t, 1), t.TempDir(), RunOptions{BaseEvery: time.Minute, Keep: 3 * time.Minute}
		stop := s.runs(directory, o)
		for n := range 12 {
			time.Sleep(time.Minute)
			s.do(func() { s.write(9) })
			if n > 4 {
				s.do(func() { s.compare(directory, time.Now().Add(-o.Keep)) })
			}
		}
		stop()
		found, err := Inspect(directory, true)
		if err != nil || found.Bases > 6 || len(found.Spans) != 1 || time.Since(found.Spans[0].From) > o.Keep+3*time.Minute {
			t.Errorf("%+v, %v", found, err)
		}
	})
}

func TestABackupEndsWithWhatAnotherTryDoesNotMend(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*shard)
		want   string
	}{
		"another shard":      {func(s *shard) { s.name = "eu1" }, "a directory of its own"},
		"etcd was restored":  {func(s *shard) { s.etcd++ }, "restored"},
		"etcd has gone back": {func(s *shard) { s.revision, s.raft = s.revision-3, 1 }, "restored"},
		"a right is missing": {func(s *shard) {
			s.fails = func() error { return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no right")) }
		}, "no right"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, directory, o := newShard(t, 1), t.TempDir(), RunOptions{BaseEvery: time.Minute, Keep: time.Hour}
				stop := s.runs(directory, o)
				time.Sleep(2 * time.Second)
				stop()
				was := s.revision
				s.do(func() { c.change(s) })
				if err := Run(t.Context(), s.client(), directory, o); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want something with %q", err, c.want)
				}
				s.do(func() { s.name, s.revision, s.fails = "root", was, nil })
				s.compare(directory, time.Now())
			})
		})
	}
}

func TestOneRunWritesADirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, directory := newShard(t, 1), t.TempDir()
		defer s.runs(directory, RunOptions{BaseEvery: time.Minute})()
		time.Sleep(time.Second)
		if err := Run(t.Context(), s.client(), directory, RunOptions{}); err == nil || !strings.Contains(err.Error(), "another process writes") {
			t.Errorf("%v", err)
		}
	})
}

// A workspace's bundle has its secrets sealed for others, if they are given, and nothing of its neighbours.
func TestABundleOfAWorkspaceIsExtracted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, directory := newShard(t, 1), t.TempDir()
		s.put("aa", "core/secrets/default/x", `{"is":"hidden"}`)
		s.put("aa-b", "core/configmaps/default/x", `{"is":"another's"}`)
		stop := s.runs(directory, RunOptions{BaseEvery: time.Minute})
		time.Sleep(2 * time.Second)
		stop()
		other, err := age.GenerateX25519Identity()
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		o := ExtractOptions{Path: logicalcluster.NewPath("root:aa"), Identities: []age.Identity{s.key}, SealTo: []age.Recipient{other.Recipient()}}
		out, err := Extract(directory, &file, o)
		if err != nil {
			t.Fatal(err)
		}
		all, err := bundle.Open(bytes.NewReader(file.Bytes()), int64(file.Len()))
		if err != nil || len(all) != 1 || all[0].Path != "root:aa" || all[0].Cluster != "aa" || all[0].Objects != out.Objects {
			t.Fatalf("%+v, %+v, %v", out, all, err)
		}
		secret, ok, err := all[0].Find("core/secrets/default/x")
		if err != nil || !ok || secret.Sealed == nil {
			t.Fatalf("%+v, %v", secret, err)
		}
		if secret, err = bundle.Unseal(secret, []age.Identity{other}); err != nil || string(secret.Object) != `{"is":"hidden"}` {
			t.Errorf("%s, %v", secret.Object, err)
		}
		if _, ok, err := all[0].Find("core/configmaps/default/x"); ok || err != nil {
			t.Errorf("it has its neighbour's object: %v", err)
		}
		for what, o := range map[string]ExtractOptions{
			"sealed for others": {Path: o.Path, Identities: []age.Identity{other}},
			"there was no work": {Path: logicalcluster.NewPath("root:zz"), Identities: o.Identities},
			"cannot go back":    {Path: o.Path, Identities: o.Identities, At: time.Now().Add(-time.Hour)},
		} {
			if _, err := Extract(directory, io.Discard, o); err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%v, want something with %q", err, what)
			}
		}
	})
}
