package reload

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regent-project/regent/test/until"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// followed is a file that is followed, and what was made of it.
type followed struct {
	*Value[string]
	file             string
	working, retired sync.Map
	faults           atomic.Int64
	end              func()
}

func follow(t *testing.T) *followed {
	t.Helper()
	f := &followed{file: filepath.Join(t.TempDir(), "file")}
	f.write(t, "one")
	var err error
	f.Value, err = New(Source[string]{
		Flag: "--file", File: f.file,
		Make: func(content []byte, _ string) (string, error) {
			if string(content) == "bad" {
				return "", errors.New("bad")
			}
			return string(content), nil
		},
		Work: func(ctx context.Context, value string) {
			f.working.Store(value, true)
			<-ctx.Done()
			f.retired.Store(value, true)
		},
		Reloaded: func([]byte) {},
		Refused:  func() { f.faults.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	f.end = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(f.end)
	return f
}

// write puts another file in its place, as Kubernetes' volumes do: nobody reads half of it.
func (f *followed) write(t *testing.T, content string) {
	t.Helper()
	next := f.file + ".next"
	if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, f.file); err != nil {
		t.Fatal(err)
	}
}

func (f *followed) now() string {
	value, release := f.Use()
	defer release()
	return value
}

func has(m *sync.Map, value string) bool {
	_, ok := m.Load(value)
	return ok
}

func TestAnOldValueWorksUntilItsLastUserHasGone(t *testing.T) {
	f := follow(t)
	until.So(t, "the first value works", func() bool { return has(&f.working, "one") })
	value, release := f.Use()
	_, doneToo := f.Use()
	f.write(t, "two")
	until.So(t, "the second value is in force", func() bool { return f.now() == "two" && has(&f.working, "two") })
	release()
	<-time.After(50 * time.Millisecond)
	if value != "one" || has(&f.retired, "one") {
		t.Errorf("%s was ended while somebody used it", value)
	}
	doneToo()
	until.So(t, "the first value's work has ended", func() bool { return has(&f.retired, "one") })
	f.end()
	if !has(&f.retired, "two") {
		t.Error("Run returned before the work had ended")
	}
	if f.now() != "two" {
		t.Errorf("after the end the value is %q", f.now())
	}
}

func TestAFaultyFileChangesNothingAndCountsOnce(t *testing.T) {
	f := follow(t)
	f.write(t, "bad")
	until.So(t, "the fault counts", func() bool { return f.faults.Load() == 1 })
	f.write(t, "bad") // as a tool that writes the same again
	if f.now() != "one" {
		t.Errorf("the value is %q", f.now())
	}
	f.write(t, "three")
	until.So(t, "the mended file is in force", func() bool { return f.now() == "three" })
	if n := f.faults.Load(); n != 1 {
		t.Errorf("%d faults", n)
	}
}

func TestAFileThatIsWrittenInItsPlaceIsFollowed(t *testing.T) {
	f := follow(t)
	for _, content := range []string{"two", "three", "four"} {
		if err := os.WriteFile(f.file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		until.So(t, content+" is in force", func() bool { return f.now() == content })
	}
}

func TestAFileThatIsMissingOrFaultyAtTheStartIsAnError(t *testing.T) {
	for _, file := range []string{"", filepath.Join(t.TempDir(), "missing")} {
		if _, err := New(Source[string]{Flag: "--file", File: file}); err == nil {
			t.Errorf("%q: no error", file)
		}
	}
}

func TestUsersAndChangesAtOnce(t *testing.T) {
	f := follow(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	var users sync.WaitGroup
	for range 8 {
		users.Go(func() {
			for ctx.Err() == nil {
				value, release := f.Use()
				if has(&f.retired, value) {
					t.Errorf("%s is in use, and its work has ended", value)
				}
				release()
			}
		})
	}
	for i := 0; ctx.Err() == nil; i++ {
		f.write(t, string(rune('a'+i%26)))
		<-time.After(60 * time.Millisecond)
	}
	users.Wait()
}
