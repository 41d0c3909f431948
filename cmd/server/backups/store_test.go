package backups

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/cmd/server/backups/s3"
)

// bucket is a store in memory.
type bucket struct {
	mu      sync.Mutex
	objects map[string][]byte
	written map[string]time.Time
	deletes int
	// fault says what becomes of a request: whether it is done, and what is answered.
	fault func(ctx context.Context, verb, name string) (isDone bool, err error)
}

func newBucket() *bucket {
	return &bucket{objects: map[string][]byte{}, written: map[string]time.Time{}}
}

func (b *bucket) String() string { return "https://store/bucket/prefix" }

// ask does what is asked for, with the faults that there are.
func (b *bucket) ask(ctx context.Context, verb, name string, do func() error) error {
	b.mu.Lock()
	fault := b.fault
	b.mu.Unlock()
	isDone, answer := true, error(nil)
	if fault != nil {
		isDone, answer = fault(ctx, verb, name)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if isDone {
		if err := do(); err != nil {
			return err
		}
	}
	return answer
}

func (b *bucket) List(ctx context.Context) (all []s3.Object, err error) {
	err = b.ask(ctx, "list", "", func() error {
		for _, name := range slices.Sorted(maps.Keys(b.objects)) {
			all = append(all, s3.Object{Name: name, Bytes: int64(len(b.objects[name])), Modified: b.written[name]})
		}
		return nil
	})
	return all, err
}

func (b *bucket) Put(ctx context.Context, name string, from *io.SectionReader) error {
	text, err := io.ReadAll(from)
	if err == nil && int64(len(text)) != from.Size() {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	return b.ask(ctx, "put", name, func() error {
		b.objects[name], b.written[name] = text, time.Now()
		return nil
	})
}

func (b *bucket) Get(ctx context.Context, name string, n int64, to io.Writer) error {
	return b.ask(ctx, "get", name, func() error {
		text, ok := b.objects[name]
		if !ok {
			return s3.ErrMissing
		}
		if int64(len(text)) < n {
			return io.ErrUnexpectedEOF
		}
		_, err := to.Write(text[:n])
		return err
	})
}

func (b *bucket) Delete(ctx context.Context, names []string) error {
	return b.ask(ctx, "delete", names[0], func() error {
		b.deletes += len(names)
		for _, name := range names {
			delete(b.objects, name)
		}
		return nil
	})
}

// fail has requests answered otherwise; nil: as they should be.
func (b *bucket) fail(fault func(ctx context.Context, verb, name string) (bool, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = fault
}

func (b *bucket) has() map[string][]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.objects)
}

var errDown = errors.New("the store is down")

func isDown(context.Context, string, string) (bool, error) { return false, errDown }

// hangs is answered by nobody, until whoever asks gives up: s3 does by itself after some time.
func hangs(ctx context.Context, _, _ string) (bool, error) {
	if sleep(ctx, 2*time.Minute) {
		return false, errDown
	}
	return false, context.Cause(ctx)
}

// atRandom has some requests fail, before or after they were done, and some hang for a while.
func atRandom(random *rand.Rand) func(context.Context, string, string) (bool, error) {
	var mu sync.Mutex
	return func(ctx context.Context, verb, _ string) (bool, error) {
		mu.Lock()
		n := random.IntN(8)
		mu.Unlock()
		switch n {
		case 0:
			return false, fmt.Errorf("%s: refused", verb)
		case 1:
			return true, fmt.Errorf("%s: the answer is lost", verb)
		case 2:
			_ = sleep(ctx, time.Second)
		}
		return true, nil
	}
}

// compareFetched fetches what a store has, and compares it with a directory: what the disk has, and no other byte.
func compareFetched(t *testing.T, b *bucket, directory string) {
	t.Helper()
	b.fail(nil)
	fetched := filepath.Join(t.TempDir(), "fetched")
	if _, err := Fetch(t.Context(), b, fetched); err != nil {
		t.Fatal(err)
	}
	got, want := readWhole(t, fetched), readWhole(t, directory)
	for name := range want {
		if strings.HasPrefix(name, "base-") { // one takes the place of another that has the same objects
			got[name] = want[name]
		}
	}
	if !reflect.DeepEqual(got, want) {
		for name := range want {
			if got[name] != want[name] {
				t.Errorf("%s: %d bytes, want %d", name, len(got[name]), len(want[name]))
			}
		}
		t.Fatalf("the store has %v, the directory %v", sortedNames(got), sortedNames(want))
	}
}

// readWhole returns the whole frames of each file.
func readWhole(t *testing.T, directory string) map[string]string {
	t.Helper()
	all, err := readContents(directory)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range slices.Concat(all.bases, all.changes) {
		text, err := os.ReadFile(f.name)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(f.name)] = string(text[:f.whole])
	}
	return out
}

// Whatever happens to the store and to whoever writes there, a fetch has what the directory has, once the store
// answers.
func TestAStoreHasWhatTheDirectoryHas(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { copyAtRandom(t, newShard(t, seed), rand.New(rand.NewPCG(seed, 3))) }) //nolint:gosec // a test
		})
	}
}

func copyAtRandom(t *testing.T, s *shard, random *rand.Rand) {
	directory, b := t.TempDir(), newBucket()
	o := RunOptions{BaseEvery: time.Minute, Keep: 2 * time.Minute, Store: b}
	stop := s.runs(directory, o)
	for range 25 {
		switch random.IntN(8) {
		case 0: // it is ended, and may be killed
			stop()
			if random.IntN(2) == 0 {
				tear(t, directory)
			}
			stop = s.runs(directory, o)
		case 1:
			b.fail(isDown)
		case 2:
			b.fail(hangs)
		case 3:
			b.fail(atRandom(rand.New(rand.NewPCG(random.Uint64(), 4)))) //nolint:gosec // a test
		case 4:
			b.fail(nil)
		case 5:
			time.Sleep(time.Duration(random.IntN(300)) * time.Second)
		}
		if random.IntN(3) > 0 {
			s.do(func() { s.write(5) })
		}
		time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
	}
	b.fail(nil)
	s.do(func() { s.write(9) })
	time.Sleep(2*time.Minute + tryMost + tellEvery + 5*time.Second) // it hangs, and deletions are tried again later
	stop()
	compareFetched(t, b, directory)
	s.compare(directory, time.Now())
	for name := range b.has() {
		if base, _, ok := strings.Cut(name, parts); ok && b.has()[base] != nil {
			t.Errorf("%s is superfluous", name)
		}
	}
}

// tear leaves a part of a large frame, as a kill in the middle of a write does.
func tear(t *testing.T, directory string) {
	t.Helper()
	is := readWhole(t, directory)
	names := sortedNames(is)
	if len(names) == 0 || isBase(names[len(names)-1]) {
		return
	}
	last := names[len(names)-1]
	head, _, _ := strings.Cut(is[last], "\n")
	head = regexp.MustCompile(`"bytes":[0-9]+`).ReplaceAllString(head, `"bytes":5000`)
	file, err := os.OpenFile(filepath.Join(directory, last), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteString(head + "\n" + strings.Repeat("x", 4000))
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// While the store hangs, the directory gets all, and the process ends in time.
func TestAStoreThatHangsHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, directory, b := newShard(t, 1), t.TempDir(), newBucket()
		b.fail(hangs)
		stop := s.runs(directory, RunOptions{BaseEvery: time.Minute, Keep: time.Hour, Store: b})
		time.Sleep(time.Minute)
		s.do(func() { s.write(9) })
		time.Sleep(2 * time.Second)
		s.do(func() { s.compare(directory, time.Now()) })
		began := time.Now()
		stop()
		if took := time.Since(began); took > lastFor+time.Second {
			t.Errorf("it ended after %v", took)
		}
	})
}

// What was written last is in the store when the process has ended in order.
func TestTheLastWritesAreCopiedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, directory, b := newShard(t, 1), t.TempDir(), newBucket()
		stop := s.runs(directory, RunOptions{BaseEvery: time.Minute, Keep: time.Hour, Store: b})
		time.Sleep(5 * time.Second)
		s.do(func() { s.put("aa", "core/configmaps/default/last", `{"is":1}`) })
		time.Sleep(every)
		stop()
		compareFetched(t, b, directory)
	})
}

// A directory that was lost costs no byte of the store's copy, also if the new one has files of the same names: nothing
// was written in the shard meanwhile.
func TestAStoreWithAnotherBackupIsLeftAlone(t *testing.T) {
	for name, prepare := range map[string]func(*shard){
		"nothing was written":   func(*shard) {},
		"something was written": func(s *shard) { s.write(9); s.put("aa", "core/configmaps/default/x", `{"is":1}`) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, first, b := newShard(t, 1), t.TempDir(), newBucket()
				o := RunOptions{BaseEvery: time.Hour, Keep: 2 * time.Hour, Store: b}
				for range 2 { // the second one takes no base, while which something is written
					stop := s.runs(first, o)
					time.Sleep(10 * time.Second)
					stop()
				}
				s.do(func() { prepare(s) })
				had := b.has()
				if err := Run(t.Context(), s.client(), t.TempDir(), o); !errors.Is(err, errForeign) || !strings.Contains(err.Error(), "another prefix") {
					t.Errorf("%v", err)
				}
				// The store answers only later: the directory has files of its own by then.
				b.fail(isDown)
				second := t.TempDir()
				stop := s.runs(second, o)
				time.Sleep(time.Minute)
				b.fail(nil)
				time.Sleep(lookEvery + time.Minute)
				s.do(func() { s.compare(second, time.Now()) })
				stop()
				if !reflect.DeepEqual(b.has(), had) {
					t.Errorf("it has %v, want %v", sortedNames(b.has()), sortedNames(had))
				}
				names := sortedNames(readWhole(t, second))
				if same := b.has()[partName(names[len(names)-1], 0)] != nil; same != (name == "nothing was written") {
					t.Errorf("%v is also in the store: %v", names, same)
				}
			})
		})
	}
}

// lateBucket does the first put of a part at once, fails, and does it again after the next put.
type lateBucket struct {
	*bucket
	late map[string][]byte // what comes late
	done map[string]bool
	well atomic.Bool
}

func (l *lateBucket) Put(ctx context.Context, name string, from *io.SectionReader) error {
	if !l.well.Load() && !l.done[name] && !strings.HasSuffix(name, parts+strings.Repeat("0", 16)) {
		l.done[name] = true
		text, err := io.ReadAll(from)
		if err != nil {
			return err
		}
		l.late[name] = text
		return errors.New("nobody knows whether it is done")
	}
	if err := l.bucket.Put(ctx, name, from); err != nil {
		return err
	}
	for name, text := range l.late {
		if err := l.bucket.Put(ctx, name, io.NewSectionReader(bytes.NewReader(text), 0, int64(len(text)))); err != nil {
			return err
		}
	}
	clear(l.late)
	return nil
}

// A request that was given up may be done later, after others.
func TestALateRequestDoesNoHarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, directory, b := newShard(t, 1), t.TempDir(), newBucket()
		late := &lateBucket{bucket: b, late: map[string][]byte{}, done: map[string]bool{}}
		stop := s.runs(directory, RunOptions{BaseEvery: time.Hour, Keep: time.Hour, Store: late})
		for range 20 {
			s.do(func() { s.put("aa", "core/configmaps/default/x", `{"is":1}`) })
			time.Sleep(700 * time.Millisecond)
		}
		late.well.Store(true)
		time.Sleep(tryMost)
		stop()
		if len(late.done) < 3 {
			t.Errorf("%d requests were late", len(late.done))
		}
		compareFetched(t, b, directory)
	})
}

// What a directory never had is removed from no store, whatever was seen before.
func TestAPlanRemovesWhatTheDirectoryHadOnly(t *testing.T) {
	local := map[string]int64{"base-00000000000000000020.frames": 5, "changes-00000000000000000015.frames": 5, "changes-00000000000000000030.frames": 5}
	is := stored{}
	for name := range local {
		is.of(name).add(piece{0, 5}, true)
	}
	for _, name := range []string{"base-00000000000000000019.frames", "base-00000000000000000021.frames", "changes-00000000000000000014.frames", "changes-00000000000000000016.frames", "changes-00000000000000000031.frames"} {
		is.of(name).add(piece{0, 5}, false)
	}
	is.of("changes-00000000000000000015.frames").add(piece{3, 2}, false)
	is.of("changes-00000000000000000030.frames").add(piece{5, 2}, false)
	var removed []string
	for next := plan(local, is, true); next != nil; next = plan(local, is, true) {
		if len(next.remove) == 0 {
			t.Fatalf("%+v", next)
		}
		removed = append(removed, next.remove...)
		is.remove(next.remove)
	}
	slices.Sort(removed)
	if want := []string{"base-00000000000000000019.frames.parts/0000000000000000", "changes-00000000000000000014.frames.parts/0000000000000000", "changes-00000000000000000015.frames.parts/0000000000000003"}; !reflect.DeepEqual(removed, want) {
		t.Errorf("%v, want %v", removed, want)
	}
}

// A directory whose files were deleted does not continue, whatever else is left in it.
func TestADirectoryWithoutItsFilesDeletesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, directory, b := newShard(t, 1), t.TempDir(), newBucket()
		o := RunOptions{BaseEvery: time.Minute, Keep: 2 * time.Minute, Store: b}
		stop := s.runs(directory, o)
		time.Sleep(10 * time.Second)
		stop()
		had := b.has()
		for name := range readWhole(t, directory) {
			if err := os.Remove(filepath.Join(directory, name)); err != nil {
				t.Fatal(err)
			}
		}
		s.do(func() { s.put("aa", "core/configmaps/default/x", `{"is":1}`) })
		for _, store := range []Store{nil, b, b} {
			o.Store = store
			b.fail(isDown)
			stop = s.runs(directory, o)
			time.Sleep(time.Minute)
			b.fail(nil)
			time.Sleep(lookEvery + time.Minute)
			stop()
		}
		if !reflect.DeepEqual(b.has(), had) {
			t.Errorf("it has %v, want %v", sortedNames(b.has()), sortedNames(had))
		}
	})
}

// While a store is down, all that it has may be removed from the directory: it is still the directory's, also for the
// next run.
func TestAStoreMayBeDownForLongerThanFilesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, directory, b := newShard(t, 1), t.TempDir(), newBucket()
		o := RunOptions{BaseEvery: time.Minute, Keep: 2 * time.Minute, Store: b}
		stop := s.runs(directory, o)
		time.Sleep(10 * time.Second)
		for n := range 2 {
			b.fail(isDown)
			for range 10 {
				s.do(func() { s.write(9) })
				time.Sleep(time.Minute)
			}
			if n == 1 {
				stop()
				stop = s.runs(directory, o)
			}
			b.fail(nil)
			time.Sleep(tellEvery)
		}
		stop()
		compareFetched(t, b, directory)
	})
}

// Whoever else writes to the prefix is noticed, and neither removes what the other one has written.
func TestSomebodyElseWhoWritesThereIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, directory, b := newShard(t, 1), t.TempDir(), newBucket()
		stop := s.runs(directory, RunOptions{BaseEvery: time.Minute, Keep: 2 * time.Minute, Store: b})
		time.Sleep(10 * time.Second)
		b.mu.Lock()
		b.objects["changes-09999999999999999999.frames"] = []byte("another's")
		b.mu.Unlock()
		time.Sleep(lookEvery + 10*time.Second)
		had := b.has()
		time.Sleep(lookEvery + time.Minute)
		s.do(func() { s.compare(directory, time.Now()) })
		stop()
		if !reflect.DeepEqual(b.has(), had) || string(had["changes-09999999999999999999.frames"]) != "another's" {
			t.Errorf("the store has %v, and had %v", sortedNames(b.has()), sortedNames(had))
		}
	})
}

func TestAStoreThatDeletesNothingGetsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, directory, b := newShard(t, 1), t.TempDir(), newBucket()
		b.fail(func(_ context.Context, verb, _ string) (bool, error) {
			if verb == "delete" {
				return false, errors.New("objects are locked")
			}
			return true, nil
		})
		stop := s.runs(directory, RunOptions{BaseEvery: time.Minute, Keep: 2 * time.Minute, Store: b})
		for range 5 {
			s.do(func() { s.write(9) })
			time.Sleep(time.Minute)
		}
		stop()
		for name, want := range readWhole(t, directory) {
			end, _ := (&copies{}).read()
			is, _, err := readStore(t.Context(), b)
			if err == nil && is[name] != nil {
				end, _ = is[name].read()
			}
			if end != int64(len(want)) {
				t.Errorf("%s: %d bytes, want %d (%v)", name, end, len(want), err)
			}
		}
		fetched := t.TempDir()
		if _, err := Fetch(t.Context(), b, fetched); err != nil {
			t.Error(err)
		}
		s.compare(fetched, time.Now())
	})
}

// A file that is written for a long time has no more parts than a listing can bear.
func TestManyPartsBecomeOneObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, directory, b := newShard(t, 1), t.TempDir(), newBucket()
		stop := s.runs(directory, RunOptions{BaseEvery: time.Hour, Keep: time.Hour, Store: b})
		most := 0
		for range 1050 {
			s.do(func() { s.put("aa", "core/configmaps/default/x", `{"is":1}`) })
			time.Sleep(1100 * time.Millisecond)
			most = max(most, len(b.has()))
		}
		stop()
		if most < partsMost || most > partsMost+3 {
			t.Errorf("it had %d objects", most)
		}
		compareFetched(t, b, directory)
	})
}

// copied returns a store with a copy of a backup, and a time of it.
func copied(t *testing.T, s *shard) (*bucket, time.Time) {
	b := newBucket()
	stop := s.runs(t.TempDir(), RunOptions{BaseEvery: time.Minute, Keep: time.Hour, Store: b})
	for range 3 {
		s.do(func() { s.put("aa", "core/configmaps/default/x", `{"is":1}`) })
		time.Sleep(40 * time.Second)
	}
	stop()
	return b, time.Now()
}

// A fetch that breaks off leaves what nobody takes for a backup, and the next one continues.
func TestAFetchThatBreaksOffIsContinued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t, 1)
		b, when := copied(t, s)
		directory := filepath.Join(t.TempDir(), "fetched")
		calls := 0
		for broken := 1; ; broken++ {
			left := broken
			b.fail(func(_ context.Context, verb, _ string) (bool, error) {
				if verb != "get" {
					return true, nil
				}
				calls++
				left--
				return left != 0, map[bool]error{true: errDown}[left == 0]
			})
			if _, err := Fetch(t.Context(), b, directory); err == nil {
				break
			} else if !errors.Is(err, errDown) {
				t.Fatal(err)
			}
			if _, err := Inspect(directory, false); err == nil || !strings.Contains(err.Error(), "regent backup fetch again") {
				t.Errorf("a half of it is taken for a backup: %v", err)
			}
			if err := Run(t.Context(), s.client(), directory, RunOptions{}); err == nil || !strings.Contains(err.Error(), "regent backup fetch again") {
				t.Errorf("a half of it is continued: %v", err)
			}
			if broken > 1000 {
				t.Fatal("it never ends")
			}
		}
		if n := len(b.has()); calls > 3*n*n {
			t.Errorf("%d requests for %d objects", calls, n)
		}
		s.compare(directory, when)
		if _, err := Fetch(t.Context(), b, directory); err == nil || !strings.Contains(err.Error(), "has a backup already") {
			t.Errorf("%v", err)
		}
	})
}

// What a power failure leaves of a fetch is fetched again, also if it has the right size.
func TestAFetchTrustsNoFileThatItFinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t, 1)
		b, when := copied(t, s)
		directory, gets := t.TempDir(), 0
		b.fail(func(_ context.Context, verb, _ string) (bool, error) {
			if verb == "get" {
				gets++
			}
			return gets < 3, map[bool]error{true: errDown}[gets == 3]
		})
		if _, err := Fetch(t.Context(), b, directory); !errors.Is(err, errDown) {
			t.Fatal(err)
		}
		names, err := frameFiles(directory)
		if err != nil || len(names) < 2 {
			t.Fatal(names, err)
		}
		name := filepath.Join(directory, names[0])
		info, err := os.Stat(name)
		if err == nil {
			err = os.WriteFile(name, make([]byte, info.Size()), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		b.fail(nil)
		if _, err := Fetch(t.Context(), b, directory); err != nil {
			t.Fatal(err)
		}
		again := filepath.Join(t.TempDir(), "again")
		if _, err := Fetch(t.Context(), b, again); err != nil || !reflect.DeepEqual(readWhole(t, directory), readWhole(t, again)) {
			t.Errorf("%s is not fetched again: %v", name, err)
		}
		s.compare(directory, when)
	})
}

// A fetched directory is continued, into the store from which it is, too.
func TestAFetchedBackupIsContinued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t, 1)
		b, when := copied(t, s)
		directory := t.TempDir()
		if _, err := Fetch(t.Context(), b, directory); err != nil {
			t.Fatal(err)
		}
		stop := s.runs(directory, RunOptions{BaseEvery: time.Minute, Keep: time.Hour, Store: b})
		s.do(func() { s.write(9) })
		time.Sleep(2 * time.Minute)
		stop()
		s.compare(directory, when)
		compareFetched(t, b, directory)
	})
}

// What the store's writer joins and removes while a fetch reads it is fetched as it is then.
func TestAStoreIsFetchedWhileItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t, 1)
		b, when := copied(t, s)
		gone := false
		b.fail(func(_ context.Context, verb, name string) (bool, error) {
			if verb == "get" && strings.Contains(name, parts) && !gone {
				gone = true
				b.mu.Lock()
				defer b.mu.Unlock()
				joinParts(b.objects)
			}
			return true, nil
		})
		directory := t.TempDir()
		if _, err := Fetch(t.Context(), b, directory); err != nil || !gone {
			t.Fatal(err, gone)
		}
		s.compare(directory, when)
	})
}

// joinParts makes one object of those of each file.
func joinParts(all map[string][]byte) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if file, _, ok := strings.Cut(name, parts); ok {
			all[file] = append(slices.Clone(all[file]), all[name]...)
			delete(all, name)
		}
	}
}

func TestAFetchRefusesWhatIsNotWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := copied(t, newShard(t, 1))
		all := b.has()
		var part, base string
		for name := range all {
			if strings.Contains(name, parts) && !strings.HasSuffix(name, parts+strings.Repeat("0", 16)) {
				part = max(part, name)
			} else if strings.HasPrefix(name, "base-") {
				base = name
			}
		}
		before := ""
		for name := range all {
			if strings.Contains(name, parts) && name < part {
				before = max(before, name)
			}
		}
		file, from, _ := strings.Cut(before, parts)
		damage := bytes.Clone(all[base])
		damage[len(damage)-1]++
		for name, c := range map[string]struct {
			change func(map[string][]byte)
			want   string
		}{
			"a gap":         {func(all map[string][]byte) { delete(all, before) }, fmt.Sprintf("the store lacks bytes %s to", strings.TrimLeft(from, "0"))},
			"a damaged one": {func(all map[string][]byte) { all[base] = damage }, base},
			"nothing":       {func(all map[string][]byte) { clear(all) }, "there is no backup"},
			"half a base":   {func(all map[string][]byte) { all[base] = all[base][:len(all[base])/2] }, "not whole"},
		} {
			b.objects = maps.Clone(all)
			c.change(b.objects)
			directory := filepath.Join(t.TempDir(), "d")
			if _, err := Fetch(t.Context(), b, directory); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%s: %v, want something with %q (%s)", name, err, c.want, file)
			}
			if _, err := Inspect(directory, false); err == nil {
				t.Errorf("%s: it is taken for a backup", name)
			}
			b.objects = maps.Clone(all) // the store has it again
			if _, err := Fetch(t.Context(), b, directory); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// Names of a store are not trusted.
func TestAHostileStoreWritesNothingElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := copied(t, newShard(t, 1))
		all := b.has()
		frames := "changes-00000000000000000001.frames"
		for _, name := range []string{
			"../" + frames, "/tmp/" + frames, "changes-../00000000000000.frames", "x/" + frames, frames + "/../../x", "lock", "fetch.part", "base.part", frames + ".parts/../0000000000000",
			"base-1.frames", frames + "\n", frames + ".parts/-000000000000001", frames + ".parts/99999999999999999999", "changes-０0000000000000000000.frames", frames + "\x00",
		} {
			b.objects[name] = []byte("x")
		}
		above := t.TempDir()
		directory := filepath.Join(above, "a", "b")
		if _, err := Fetch(t.Context(), b, directory); err != nil {
			t.Fatal(err)
		}
		files := 0
		if err := filepath.WalkDir(above, func(name string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			files++
			if filepath.Dir(name) != directory || filepath.Base(name) != lockName && all[filepath.Base(name)] == nil && all[partName(filepath.Base(name), 0)] == nil {
				t.Errorf("%s is written", name)
			}
			return nil
		}); err != nil || files < 3 {
			t.Errorf("%d files, %v", files, err)
		}
	})
}

func TestAStoreIsInspectedByItsListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, when := copied(t, newShard(t, 1))
		b.fail(func(_ context.Context, verb, _ string) (bool, error) {
			return true, map[bool]error{true: errDown}[verb != "list"]
		})
		found, err := InspectStore(t.Context(), b)
		if err != nil || found.Bases < 2 || found.Changes < 2 || found.Bytes == 0 || len(found.Gaps) > 0 || when.Sub(found.Written) > idleFor+2*time.Second {
			t.Errorf("%+v, %v", found, err)
		}
		b.objects["changes-09999999999999999999.frames.parts/0000000000000007"] = []byte("x")
		if found, err = InspectStore(t.Context(), b); err != nil || !reflect.DeepEqual(found.Gaps, []string{"changes-09999999999999999999.frames: bytes 0 to 7"}) {
			t.Errorf("%+v, %v", found, err)
		}
	})
}

// While nothing is written, each run continues the same file: what a store has of it remains a part of it.
func TestAnIdleShardsFileIsContinued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, directory := newShard(t, 1), t.TempDir()
		o := RunOptions{BaseEvery: time.Hour, Keep: time.Hour}
		stop := s.runs(directory, o) // something is written while the base is read
		time.Sleep(30 * time.Second)
		stop()
		was := ""
		for range 3 {
			stop := s.runs(directory, o)
			time.Sleep(30 * time.Second)
			stop()
			is := readWhole(t, directory)
			name := sortedNames(is)[len(is)-1]
			if !strings.HasPrefix(is[name], was) || len(is[name]) <= len(was) {
				t.Fatalf("%s has %d bytes, and had %d others", name, len(is[name]), len(was))
			}
			was = is[name]
			tear(t, directory)
		}
		if found, err := Inspect(directory, true); err != nil || len(found.Spans) != 1 {
			t.Errorf("%+v, %v", found, err)
		}
		if m := s.compare(directory, time.Now()); m.revision != s.revision {
			t.Error(m.revision)
		}
	})
}
