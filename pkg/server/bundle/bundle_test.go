package bundle

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
)

func header() Header {
	return Header{Version: Version, Cluster: "2xk", Path: "root:team", Shard: "root", Revision: 7, Time: time.Unix(1, 0).UTC(), WrittenBy: "v0.3.0"}
}

// objects returns n objects with texts of up to so many bytes.
func objects(n, size int) (out []Object) {
	random := rand.New(rand.NewPCG(1, uint64(n))) //nolint:gosec // a test
	for i := range n {
		o := Object{Key: fmt.Sprintf("core/configmaps/default/%06d", i), Revision: int64(i + 1)}
		switch i % 7 {
		case 0:
			o.Deleted = true
		case 1:
			o.Unreadable = "no object"
		case 2:
			o.Sealed = []byte{1, 2, 3}
		default:
			text := make([]byte, random.IntN(size))
			for j := range text {
				text[j] = 'a' + byte(random.IntN(26)) //nolint:gosec // a letter
			}
			o.Object = json.RawMessage(fmt.Sprintf(`{"data":%q}`, text))
		}
		out = append(out, o)
	}
	return out
}

func write(t testing.TB, to io.Writer, h Header, all []Object) {
	t.Helper()
	w, err := NewWriter(to, h)
	for _, o := range all {
		if err == nil {
			err = w.Add(o)
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, b *Bundle) (out []Object) {
	t.Helper()
	if err := b.Each(func(o Object) error { out = append(out, o); return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	for _, n := range []int{0, 1, 10, 1000} {
		var file bytes.Buffer
		all := objects(n, 20_000)
		write(t, &file, header(), all)
		found, err := Open(bytes.NewReader(file.Bytes()), int64(file.Len()))
		if err != nil || len(found) != 1 {
			t.Fatalf("%d objects: %d bundles, %v", n, len(found), err)
		}
		b := found[0]
		if b.Header != header() || b.Objects != n {
			t.Errorf("%d objects: %+v with %d objects", n, b.Header, b.Objects)
		}
		if got := read(t, b); !reflect.DeepEqual(got, all) {
			t.Errorf("%d objects: others are read", n)
		}
		for i := 0; i < n; i += 1 + n/50 {
			if got, ok, err := b.Find(all[i].Key); err != nil || !ok || !reflect.DeepEqual(got, all[i]) {
				t.Errorf("%s: found %v, %v", all[i].Key, ok, err)
			}
		}
		for _, key := range []string{"core/a/b", "core/configmaps/default/0000000", "zz/z/z"} {
			if _, ok, err := b.Find(key); ok || err != nil {
				t.Errorf("%s: found %v, %v", key, ok, err)
			}
		}
		if n == 1000 && len(b.index.Chunks) < 3 {
			t.Error("a search always finds the first part")
		}
	}
}

// Other tools read a bundle as lines of JSON.
func TestABundleIsLinesOfJSON(t *testing.T) {
	var file bytes.Buffer
	write(t, &file, header(), objects(200, 5_000))
	z, err := gzip.NewReader(&file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) != 202 || !strings.HasPrefix(lines[0], `{"bundle":{"version":1,"cluster":"2xk"`) || !strings.HasPrefix(lines[201], `{"index":{`) {
		t.Errorf("%d lines, from %.60s to %.60s", len(lines), lines[0], lines[len(lines)-1])
	}
	if want := `{"key":"core/configmaps/default/000000","revision":1,"deleted":true}`; lines[1] != want {
		t.Errorf("%s, want %s", lines[1], want)
	}
}

func TestAFileHasBundlesOfManyClusters(t *testing.T) {
	var file bytes.Buffer
	for i := range 5 {
		h := header()
		h.Cluster = fmt.Sprint("c", i)
		write(t, &file, h, objects(i*100, 2_000))
	}
	all, err := Open(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil || len(all) != 5 {
		t.Fatalf("%d bundles, %v", len(all), err)
	}
	for i, b := range all {
		if b.Cluster != fmt.Sprint("c", i) || !reflect.DeepEqual(read(t, b), objects(i*100, 2_000)) {
			t.Errorf("bundle %d is of %s, or has other objects", i, b.Cluster)
		}
	}
}

// check reads all that a file has.
func check(file []byte) error {
	all, err := Open(bytes.NewReader(file), int64(len(file)))
	for _, b := range all {
		if err == nil {
			err = b.Each(nil)
		}
	}
	return err
}

func TestWhateverIsCutOffIsFound(t *testing.T) {
	var file bytes.Buffer
	write(t, &file, header(), objects(20, 40))
	for n := range file.Len() {
		if err := check(file.Bytes()[:n]); !errors.Is(err, ErrDamaged) {
			t.Fatalf("%d of %d bytes: %v", n, file.Len(), err)
		}
	}
}

// A changed byte is found, or changes nothing that is read: gzip's header has a time and a system.
func TestWhateverByteIsChangedIsFoundOrMeansNothing(t *testing.T) {
	var file bytes.Buffer
	all := objects(20, 40)
	write(t, &file, header(), all)
	found := 0
	for n := range file.Len() {
		changed := bytes.Clone(file.Bytes())
		changed[n] ^= 0x41
		switch err := check(changed); {
		case errors.Is(err, ErrDamaged):
			found++
		case err != nil:
			t.Fatalf("byte %d: %v", n, err)
		default:
			b, _ := Open(bytes.NewReader(changed), int64(len(changed)))
			if len(b) != 1 || b[0].Header != header() || !reflect.DeepEqual(read(t, b[0]), all) {
				t.Fatalf("byte %d is changed, and something else is read", n)
			}
		}
	}
	if found < file.Len()-40 {
		t.Errorf("%d of %d changed bytes are found", found, file.Len())
	}
}

func TestABundleOfANewerFormatNamesWhatReadsIt(t *testing.T) {
	var file bytes.Buffer
	w := &Writer{to: &file}
	if err := w.add(Line{Header: &Header{Version: Version + 1, WrittenBy: "v9.0.0"}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	err := check(file.Bytes())
	if err == nil || !strings.Contains(err.Error(), "v9.0.0") || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("%v", err)
	}
}

func TestOnlyKeysInTheirOrderAreWritten(t *testing.T) {
	for name, keys := range map[string][]string{
		"twice":                       {"core/configmaps/default/a", "core/configmaps/default/a"},
		"back":                        {"core/configmaps/default/b", "core/configmaps/default/a"},
		"no name":                     {"core/configmaps"},
		"a custom object of no group": {"custom/Widget/x"},
		"too long":                    {"core/configmaps/default/a/b"},
		"elsewhere":                   {"core/configmaps/../a"},
		"an empty segment":            {"core//default/a"},
	} {
		w, err := NewWriter(io.Discard, header())
		for _, key := range keys {
			if err == nil {
				err = w.Add(Object{Key: key, Deleted: true})
			}
		}
		if err == nil {
			t.Errorf("%s: written", name)
		}
	}
}

func TestOnlyWhoHasTheIdentityUnseals(t *testing.T) {
	ours, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	o := Object{Key: "core/secrets/default/x", Revision: 1, Object: json.RawMessage(`{"data":"hidden"}`)}
	sealed, err := Seal(o, []age.Recipient{ours.Recipient()})
	if err != nil || sealed.Object != nil || bytes.Contains(sealed.Sealed, []byte("hidden")) {
		t.Fatalf("%+v, %v", sealed, err)
	}
	if got, err := Unseal(sealed, []age.Identity{theirs, ours}); err != nil || !reflect.DeepEqual(got, o) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, identities := range [][]age.Identity{nil, {theirs}} {
		if _, err := Unseal(sealed, identities); !errors.Is(err, ErrSealed) {
			t.Errorf("with %d identities: %v", len(identities), err)
		}
	}
	sealed.Sealed[len(sealed.Sealed)-1] ^= 1
	if _, err := Unseal(sealed, []age.Identity{ours}); err == nil || errors.Is(err, ErrSealed) {
		t.Errorf("changed: %v", err)
	}
	if got, err := Unseal(o, nil); err != nil || !reflect.DeepEqual(got, o) {
		t.Errorf("not sealed: %+v, %v", got, err)
	}
}

// Whatever a file has, reading it ends, with an error or with objects.
func FuzzOpen(f *testing.F) {
	var file bytes.Buffer
	write(f, &file, header(), objects(8, 40))
	f.Add(file.Bytes())
	f.Add([]byte{})
	f.Fuzz(func(_ *testing.T, data []byte) { _ = check(data) })
}
