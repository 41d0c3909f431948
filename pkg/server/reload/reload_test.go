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
	value, done := f.Use()
	defer done()
	return value
}

func has(m *sync.Map, value string) bool {
	_, ok := m.Load(value)
	return ok
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func TestAnOldValueWorksUntilItsLastUserHasGone(t *testing.T) {
	f := follow(t)
	eventually(t, "the first value does not work", func() bool { return has(&f.working, "one") })
	value, done := f.Use()
	_, doneToo := f.Use()
	f.write(t, "two")
	eventually(t, "the second value is not in force", func() bool { return f.now() == "two" && has(&f.working, "two") })
	done()
	<-time.After(50 * time.Millisecond)
	if value != "one" || has(&f.retired, "one") {
		t.Errorf("%s was ended while somebody used it", value)
	}
	doneToo()
	eventually(t, "the first value's work goes on", func() bool { return has(&f.retired, "one") })
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
	eventually(t, "the fault does not count", func() bool { return f.faults.Load() == 1 })
	f.write(t, "bad") // as a tool that writes the same again
	if f.now() != "one" {
		t.Errorf("the value is %q", f.now())
	}
	f.write(t, "three")
	eventually(t, "the mended file is not in force", func() bool { return f.now() == "three" })
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
		eventually(t, content+" is not in force", func() bool { return f.now() == content })
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
				value, done := f.Use()
				if has(&f.retired, value) {
					t.Errorf("%s is in use, and its work has ended", value)
				}
				done()
			}
		})
	}
	for i := 0; ctx.Err() == nil; i++ {
		f.write(t, string(rune('a'+i%26)))
		<-time.After(60 * time.Millisecond)
	}
	users.Wait()
}
