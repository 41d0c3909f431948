package dev

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/regent-project/regent/cmd/server/face/view"
)

const header = `I1123 15:05:54.684102   30022 etcd.go:80] `

func TestAFirstTimeUserSeesWhatHappensAndNothingElse(t *testing.T) {
	for name, c := range map[string]struct{ log, want string }{
		"what goes well is not shown": {
			header + `Adding GroupVersion  v1 to ResourceManager` + "\n" + header + `"Leading" shard="root" epoch=1`, ""},
		"controllers that fail, with all lines": {
			`E1123 15:05:54.1  1 a.go:1] "Controller failed" stack=<` + "\n\tmain.f()\n >\n" + header + `"Serving" x=<` + "\n\tnot this\n >",
			`E1123 15:05:54.1  1 a.go:1] "Controller failed" stack=<` + "\n\tmain.f()\n >"},
		"warnings":    {`W1123 15:05:54.1  1 a.go:1] slow`, `W1123 15:05:54.1  1 a.go:1] slow`},
		"panics":      {header + "x\npanic: no\n\ngoroutine 1 [running]:\nmain.f()\n\tf.go:1", "panic: no\n\ngoroutine 1 [running]:\nmain.f()\n\tf.go:1"},
		"JSON":        {`{"ts":1.5,"caller":"a.go:1","msg":"Leading","v":0}` + "\n" + `{"ts":1.5,"msg":"Bad","err":"x"}`, `{"ts":1.5,"msg":"Bad","err":"x"}`},
		"faulty flag": {"error: unknown flag: --x", "error: unknown flag: --x"},
	} {
		t.Run(name, func(t *testing.T) {
			var shown bytes.Buffer
			l := (&output{to: &shown}).prefixed("r", filepath.Join(t.TempDir(), "r.log"), nil)
			_, _ = l.Write([]byte(c.log))
			l.flush()
			want := ""
			if c.want != "" {
				want = "r | " + strings.ReplaceAll(c.want, "\n", "\nr | ") + "\n"
			}
			if got := shown.String(); got != want {
				t.Errorf("shown:\n%s\nwant:\n%s", got, want)
			}
			if content, err := os.ReadFile(l.keep.name); err != nil || string(content) != c.log+"\n" {
				t.Errorf("kept: %q, %v", content, err)
			}
		})
	}
}

// Until its shards know each other, they refuse each other. That is an error in the log of each start.
func TestErrorsOfAStartAreShownOnlyIfItFails(t *testing.T) {
	refused := `E1123 15:05:54.1  1 a.go:76] "Unable to authenticate the request" err="is no member"`
	info, later := header+"Serving", `E1123 15:05:55.1  1 a.go:1] "Later"`
	for name, c := range map[string]struct {
		during func(*start)
		then   string // what is logged afterwards
		want   []string
	}{
		"it goes well":          {func(s *start) { s.up.Store(true) }, info + "\n" + later + "\n", []string{later}},
		"it takes long":         {func(s *start) { s.until = time.Now() }, info + "\n" + later + "\n", []string{refused, later}},
		"the process ends":      {func(*start) {}, "", []string{refused}},
		"it panics":             {func(*start) {}, "panic: no", []string{"panic: no", refused}},
		"it fails without news": {func(s *start) { s.until = time.Now() }, info, []string{refused}},
	} {
		t.Run(name, func(t *testing.T) {
			var shown bytes.Buffer
			s := &start{until: time.Now().Add(time.Hour)}
			l := (&output{to: &shown}).prefixed("r", filepath.Join(t.TempDir(), "r.log"), s)
			_, _ = l.Write([]byte(refused + "\n"))
			if shown.Len() != 0 {
				t.Errorf("shown during the start:\n%s", &shown)
			}
			c.during(s)
			_, _ = l.Write([]byte(c.then))
			l.flush()
			if got, want := shown.String(), "r | "+strings.Join(c.want, "\nr | ")+"\n"; got != want {
				t.Errorf("shown:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

func TestALogFileIsBoundedAndGoesOnAfterARestart(t *testing.T) {
	name := filepath.Join(t.TempDir(), "logs", "r.log")
	const most = 100
	for n := range 40 { // each as a process of its own
		l := logFile{name: name, most: most}
		if err := l.writeLine(fmt.Appendf(nil, "line %d", n)); err != nil {
			t.Fatal(err)
		}
		if err := l.close(); err != nil {
			t.Fatal(err)
		}
	}
	older, err := os.ReadFile(name + ".1")
	if err != nil {
		t.Fatal(err)
	}
	latest, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if len(older) > most || len(latest) > most {
		t.Errorf("the files have %d and %d bytes, want at most %d", len(older), len(latest), most)
	}
	if both := string(older) + string(latest); !strings.HasSuffix(both, "line 37\nline 38\nline 39\n") {
		t.Errorf("the files end with %q", both)
	}
}

func TestALogWithoutAFileIsShown(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var shown bytes.Buffer
	l := (&output{to: &shown}).prefixed("r", filepath.Join(blocked, "r.log"), nil)
	_, _ = l.Write([]byte(header + "one\n" + header + "two\n"))
	l.flush()
	if got := shown.String(); strings.Count(got, "dev | The log of r is shown here") != 1 || !strings.Contains(got, "one\n") || !strings.Contains(got, "two\n") {
		t.Errorf("shown:\n%s", got)
	}
}

// On a terminal a line that is said while something is waited for takes the place of the line that tells of the
// waiting.
func TestWhatIsSaidWhileDevWaitsDoesNotRunIntoTheLineThatTellsOfIt(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		var shown bytes.Buffer
		o := &output{to: &shown, colour: terminal, waits: &shown}
		if err := o.while(t.Context(), "Waiting", func(context.Context) error {
			o.say("meanwhile")
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		o.say("after")
		meanwhile, after, _ := strings.Cut(shown.String(), "\n")
		if cleared := strings.HasPrefix(meanwhile, view.ClearLine); cleared != terminal || strings.Contains(after, view.ClearLine) || !strings.HasSuffix(meanwhile, "| meanwhile") {
			t.Errorf("terminal %v: %q", terminal, shown.String())
		}
	}
}
