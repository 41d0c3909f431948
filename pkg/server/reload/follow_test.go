package reload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// diary is a follower that writes down what becomes of a file, in a time of its own.
type diary struct {
	*Follower
	t     *testing.T
	file  string
	now   time.Time
	lines []string
	fault error // of what is used
}

func newDiary(t *testing.T, file string) *diary {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d := &diary{t: t, file: file, now: time.Now()}
	note := func(format string, args ...any) { d.lines = append(d.lines, fmt.Sprintf(format, args...)) }
	d.Follower = &Follower{
		InUse: string(content),
		Read: func() (string, error) {
			content, err := os.ReadFile(d.file)
			return string(content), err
		},
		Use: func(_ context.Context, content string) error {
			note("use %s", content)
			return d.fault
		},
		Accepted: func(_ context.Context, content string) { note("accept %s", content) },
		Refused: func(_ context.Context, err error, news bool) {
			if errors.Is(err, os.ErrNotExist) {
				err = os.ErrNotExist
			}
			note("refuse, %v, news %t", err, news)
		},
	}
	return d
}

// expect looks n times, a second apart, and compares what has become of the file meanwhile.
func (d *diary) expect(n int, want ...string) {
	d.t.Helper()
	d.lines = nil
	for range n {
		d.now = d.now.Add(time.Second)
		d.Look(d.t.Context(), d.now)
	}
	if !slices.Equal(d.lines, want) {
		d.t.Errorf("got %q, want %q", d.lines, want)
	}
}

func (d *diary) write(content string) {
	d.t.Helper()
	if err := os.WriteFile(d.file, []byte(content), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

func newFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAFileIsUsedOnceWhenItHasStayedTheSame(t *testing.T) {
	d := newDiary(t, newFile(t))
	d.expect(3)
	d.write("")
	d.expect(1) // an editor has emptied it
	d.write("tw")
	d.expect(1)
	d.write("two")
	d.expect(1)
	d.expect(3, "use two", "accept two")
	d.write("three")
	d.expect(1)
	d.write("two")
	d.expect(3) // it is in use
}

func TestWithAtOnceAFileIsUsedAtTheFirstLook(t *testing.T) {
	d := newDiary(t, newFile(t))
	d.AtOnce = true
	d.write("two")
	d.expect(1, "use two", "accept two")
	d.expect(2)
}

func TestAFileThatAnotherReplacesIsFollowed(t *testing.T) {
	d := newDiary(t, newFile(t))
	if err := os.WriteFile(d.file+".next", []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(d.file+".next", d.file); err != nil {
		t.Fatal(err)
	}
	d.expect(3, "use two", "accept two")
}

// A mounted Secret is a link into a link to a directory, which is exchanged.
func TestAMountedSecretIsFollowed(t *testing.T) {
	directory := t.TempDir()
	mount := func(version, content string) {
		t.Helper()
		if err := errors.Join(os.Mkdir(filepath.Join(directory, version), 0o700),
			os.WriteFile(filepath.Join(directory, version, "file"), []byte(content), 0o600),
			os.Symlink(version, filepath.Join(directory, "..data_tmp")),
			os.Rename(filepath.Join(directory, "..data_tmp"), filepath.Join(directory, "..data"))); err != nil {
			t.Fatal(err)
		}
	}
	mount("..1", "one")
	file := filepath.Join(directory, "file")
	if err := os.Symlink(filepath.Join("..data", "file"), file); err != nil {
		t.Fatal(err)
	}
	d := newDiary(t, file)
	mount("..2", "two")
	if err := os.RemoveAll(filepath.Join(directory, "..1")); err != nil {
		t.Fatal(err)
	}
	d.expect(3, "use two", "accept two")
}

func TestWhatIsRefusedIsTriedAgainWhenItChanges(t *testing.T) {
	d := newDiary(t, newFile(t))
	d.fault = errors.New("bad")
	d.write("two")
	d.expect(5, "use two", "refuse, bad, news true")
	d.write("three")
	d.expect(5, "use three", "refuse, bad, news true")
	d.write("one")
	d.expect(5, "accept one") // as it was
	d.write("three")
	d.fault = nil
	d.expect(5, "use three", "accept three")
}

func TestAnErrorMayAskToBeTriedAgain(t *testing.T) {
	d := newDiary(t, newFile(t))
	d.fault = fmt.Errorf("not now: %w", TryAgain(errors.New("away"), 2*time.Second))
	d.write("two")
	d.expect(4, "use two", "refuse, not now: away, news true", "use two", "refuse, not now: away, news false")
	d.fault = errors.New("bad")
	d.expect(4, "use two", "refuse, bad, news true")
}

func TestAFileThatIsMissingIsRefusedOnceAndAcceptedWhenItIsBack(t *testing.T) {
	d := newDiary(t, newFile(t))
	if err := os.Remove(d.file); err != nil {
		t.Fatal(err)
	}
	d.expect(4, "refuse, file does not exist, news true")
	d.write("one")
	d.expect(4, "accept one")
}

// What fails because the process ends is no fault of the files.
func TestNothingIsRefusedAtTheEnd(t *testing.T) {
	d := newDiary(t, newFile(t))
	d.AtOnce, d.fault = true, errors.New("stopped")
	d.write("two")
	ended, end := context.WithCancel(t.Context())
	end()
	d.Look(ended, d.now)
	if want := []string{"use two"}; !slices.Equal(d.lines, want) {
		t.Errorf("got %q, want %q", d.lines, want)
	}
	d.expect(1, "use two", "refuse, stopped, news true")
}

func TestWhatTheCallerRefusesIsAcceptedByTheNextLook(t *testing.T) {
	d := newDiary(t, newFile(t))
	d.expect(2)
	d.lines = nil
	for range 2 {
		d.Refuse(t.Context(), errors.New("old"))
	}
	if want := []string{"refuse, old, news true", "refuse, old, news false"}; !slices.Equal(d.lines, want) {
		t.Errorf("got %q, want %q", d.lines, want)
	}
	d.expect(2, "accept one")
}
