package backup

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/regent-project/regent/pkg/server/bundle"
)

func identity(t testing.TB) *age.X25519Identity {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// records returns n records, one of them longer than any buffer.
func records(n int) (all []Record) {
	for i := range n {
		r := Record{Cluster: fmt.Sprint("c", i%3), Object: bundle.Object{Key: fmt.Sprint("core/configmaps/default/", i), Revision: int64(i + 1)}, Secret: i%2 == 0}
		switch i % 5 {
		case 0:
			r.Gone = true
		case 1:
			r.Object.Object = json.RawMessage(fmt.Sprintf(`{"a":%q}`, strings.Repeat("x", 100_000)))
		default:
			r.Object.Object = json.RawMessage(fmt.Sprintf(`{"a":%d}`, i))
		}
		all = append(all, r)
	}
	return all
}

func write(t testing.TB, to *bytes.Buffer, h Head, all []Record, recipients ...age.Recipient) {
	t.Helper()
	f, err := NewFrame(h.Kind, recipients)
	for _, r := range all {
		if err == nil {
			err = f.Add(r)
		}
	}
	if err == nil {
		h.Version = Version
		f.Head = h
		_, err = f.WriteTo(to)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// head returns that of the nth frame of changes.
func head(n int64) Head {
	return Head{Kind: Changes, Shard: "root", Etcd: 7, Raft: 3, After: n, Revision: n + 1, Time: time.Unix(n, 0).UTC(), WrittenBy: "v1"}
}

// read returns what a file has, and how many of its bytes are whole frames.
func read(file []byte, identities ...age.Identity) (all []Record, whole int64, err error) {
	at := bytes.NewReader(file)
	frames, whole, err := ReadHeads(at, int64(len(file)))
	for _, frame := range frames {
		if err == nil {
			err = frame.Read(at, identities, nil, func(r Record) error { all = append(all, r); return nil })
		}
	}
	return all, whole, err
}

func TestWhatIsWrittenIsReadByTheRecipientsOnly(t *testing.T) {
	key, other := identity(t), identity(t)
	var file bytes.Buffer
	want := records(20)
	for n := range int64(4) {
		write(t, &file, head(n+1), want[n*5:(n+1)*5], key.Recipient(), identity(t).Recipient())
	}
	got, whole, err := read(file.Bytes(), other, key)
	if err != nil || whole != int64(file.Len()) || !reflect.DeepEqual(got, want) {
		t.Errorf("%d records and %d of %d bytes are read: %v", len(got), whole, file.Len(), err)
	}
	for _, identities := range [][]age.Identity{nil, {other}} {
		if _, _, err := read(file.Bytes(), identities...); !errors.Is(err, bundle.ErrSealed) {
			t.Errorf("with %d other identities: %v", len(identities), err)
		}
	}
	if bytes.Contains(file.Bytes(), []byte("configmaps")) {
		t.Error("what is in it can be read")
	}
}

func TestOnlyRecordsOfInterestAreDecoded(t *testing.T) {
	key := identity(t)
	var file bytes.Buffer
	write(t, &file, head(1), records(9), key.Recipient())
	frames, _, err := ReadHeads(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	err = frames[0].Read(bytes.NewReader(file.Bytes()), []age.Identity{key}, func(line []byte) bool { return bytes.HasPrefix(line, []byte(`{"cluster":"c1",`)) }, func(r Record) error {
		if found++; r.Cluster != "c1" {
			t.Errorf("record of %s", r.Cluster)
		}
		return nil
	})
	if err != nil || found != 3 {
		t.Errorf("%d records, %v", found, err)
	}
}

// A writer that was ended leaves a part of a frame at the end: all before it is good.
func TestWhatIsCutOffAtTheEndIsLeftOut(t *testing.T) {
	key := identity(t)
	var file bytes.Buffer
	write(t, &file, head(1), records(1), key.Recipient())
	first := file.Len()
	write(t, &file, head(2), records(1), key.Recipient())
	for n := range file.Len() {
		got, whole, err := read(file.Bytes()[:n], key)
		want := 0
		if n >= first {
			want = 1
		}
		if err != nil || len(got) != want || whole != int64(want*first) {
			t.Fatalf("%d of %d bytes: %d records, %d whole bytes, %v", n, file.Len(), len(got), whole, err)
		}
	}
}

// A changed byte is found, or the frame is the last one and seems to be cut off.
func TestWhateverByteIsChangedIsFound(t *testing.T) {
	key := identity(t)
	var file bytes.Buffer
	write(t, &file, head(1), records(1), key.Recipient())
	unused := bytes.Index(file.Bytes(), []byte(`="}`)) - 1 // two bits of it are of no byte of the sum
	for n := range file.Len() {
		if n == unused {
			continue
		}
		for _, flip := range []byte{0x01, 0x41} {
			changed := bytes.Clone(file.Bytes())
			changed[n] ^= flip
			got, whole, err := read(changed, key)
			if !errors.Is(err, ErrDamaged) && !strings.Contains(fmt.Sprint(err), "version") && (err != nil || whole > 0 || len(got) > 0) {
				t.Fatalf("byte %d: %d records, %v", n, len(got), err)
			}
		}
	}
}

func TestAFrameIsTakenAsItIs(t *testing.T) {
	var file bytes.Buffer
	write(t, &file, head(1), records(3), identity(t).Recipient())
	h, frame, err := ReadFrame(bufio.NewReader(bytes.NewReader(file.Bytes())))
	if err != nil || h.Revision != 2 || !bytes.Equal(frame, file.Bytes()) {
		t.Errorf("revision %d, %d of %d bytes, %v", h.Revision, len(frame), file.Len(), err)
	}
	for n := range file.Len() {
		if _, _, err := ReadFrame(bufio.NewReader(bytes.NewReader(file.Bytes()[:n]))); !errors.Is(err, ErrDamaged) {
			t.Fatalf("%d of %d bytes: %v", n, file.Len(), err)
		}
	}
}

func TestAFrameOfANewerFormatNamesWhatReadsIt(t *testing.T) {
	_, _, err := ReadFrame(bufio.NewReader(strings.NewReader(`{"version":2,"kind":"base","writtenBy":"v9"}` + "\n")))
	if err == nil || !strings.Contains(err.Error(), "v9") {
		t.Errorf("%v", err)
	}
}

func TestAFrameIsPassedOverOnlyIfItHasNothingOfTheCluster(t *testing.T) {
	for _, c := range []struct {
		first, next, cluster string
		want                 bool
	}{
		{"core/configmaps/a", "core/configmaps/c", "b", true},
		{"core/configmaps/a", "core/configmaps/c", "a", true},
		{"core/configmaps/a", "core/configmaps/c", "c", true},
		{"core/configmaps/a", "core/configmaps/c", "d", false},
		{"core/configmaps/b", "core/configmaps/c", "a", false},
		{"core/configmaps/b", "core/secrets/a", "z", true},
		{"core/configmaps/b", "core/secrets/a", "a", true},      // of another resource that the frame has
		{"core/configmaps/a-b", "core/configmaps/a", "a", true}, // a slash is behind a hyphen
		{"core/configmaps/a-b", "core/configmaps/a", "a-c", true},
		{"core/configmaps/a-c", "core/configmaps/a", "a-b", false},
		{"custom/a", "custom/c", "b", true},
	} {
		if got := MayHave(c.first, c.next, c.cluster); got != c.want {
			t.Errorf("from %s to %s of %s: %v, want %v", c.first, c.next, c.cluster, got, c.want)
		}
	}
}

// Whatever a file has, reading it ends.
func FuzzReadHeads(f *testing.F) {
	key := identity(f)
	var file bytes.Buffer
	write(f, &file, head(1), records(2), key.Recipient())
	f.Add(file.Bytes())
	f.Fuzz(func(_ *testing.T, data []byte) { _, _, _ = read(data, key) })
}
