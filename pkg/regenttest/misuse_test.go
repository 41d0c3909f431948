package regenttest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whatever makes no sense fails the test at once, and says what to do.
func TestMisuseIsExplained(t *testing.T) {
	t.Parallel()
	server := Start(t)
	r := server.Replicas[0]
	for _, c := range []struct {
		name string
		do   func(t testing.TB)
		want string
	}{
		{"no shard", func(t testing.TB) { Start(t, Shards(0)) }, "regenttest.Shards(0): it must be between 1 and 16"},
		{"many replicas", func(t testing.TB) { Start(t, Replicas(17)) }, "regenttest.Replicas(17): it must be between 1 and 16"},
		{"no flag", func(t testing.TB) { Start(t, Flags("v", "4")) }, `regenttest.Flags("v"): give flags as --name=value`},
		{"a value apart", func(t testing.TB) { Start(t, Flags("--v 4")) }, `regenttest.Flags("--v 4"): give flags as --name=value`},
		{"a flag that is set", func(t testing.TB) { Start(t, Flags("--secure-port=6443")) }, `regenttest.Flags("--secure-port=6443"): regenttest sets it for each replica: leave it out`},
		{"an unknown flag", func(t testing.TB) { Start(t, Flags("--nonsense=1")) }, "a flag is wrong: its last lines:\n    regent: unknown flag: --nonsense"},
		{"no program", func(t testing.TB) { Start(t, Program("")) }, `regenttest.Program(""): name the file of regent`},
		{"a program that is not there", func(t testing.TB) { Start(t, Program("/nowhere/regent")) }, `regenttest.Program("/nowhere/regent"): it cannot be run`},
		{"another program", func(t testing.TB) { Start(t, Program("/bin/false")) }, "cannot start regent: root-"},
		{"a workspace twice", func(t testing.TB) { server.Workspace(t, "twice"); server.Workspace(t, "twice") }, "there is a workspace twice already"},
		{"a workspace without its parent", func(t testing.TB) { server.Workspace(t, "nobody:a") }, `there is no workspace in which "a" could be`},
		{"a workspace without a name", func(t testing.TB) { server.Workspace(t, "") }, `no workspace can be called ""`},
		{"a workspace of another name", func(t testing.TB) { server.Workspace(t, t.Name()) }, `no workspace can be called "TestMisuse`},
		{"nobody", func(t testing.TB) { server.User(t, server.Config("root"), "") }, "a User needs a name"},
		{"Resume first", func(t testing.TB) { r.Resume(t) }, "root-replica-0 is not paused: nothing to Resume"},
		{"Heal first", func(t testing.TB) { r.Heal(t) }, "root-replica-0 is not cut off: nothing to Heal"},
		{"Restart first", func(t testing.TB) { r.Restart(t) }, "root-replica-0 runs already: Kill or Stop it before Restart"},
		{"Cut twice", func(t testing.TB) { defer r.Heal(t); r.Cut(t); r.Cut(t) }, "root-replica-0 is cut off already"},
		{"Pause twice", func(t testing.TB) { defer r.Resume(t); r.Pause(t); r.Pause(t) }, "root-replica-0 is paused already"},
		{"Stop of what is paused", func(t testing.TB) { defer r.Resume(t); r.Pause(t); r.Stop(t) }, "root-replica-0 is paused and cannot hear: Resume it before Stop, or Kill it"},
		{"Kill twice", func(t testing.TB) { defer r.Restart(t); r.Kill(t); r.Kill(t) }, "root-replica-0 has ended already: Restart starts it again"},
		{"Pause of what has ended", func(t testing.TB) { defer r.Restart(t); r.Kill(t); r.Pause(t) }, "root-replica-0 has ended: only what runs can Pause"},
	} {
		if f := fails(t, c.do); !strings.HasPrefix(f.fatal, "regenttest: ") || !strings.Contains(f.fatal, c.want) {
			t.Errorf("%s: it says %q, want %q", c.name, f.fatal, c.want)
		}
	}
}

func TestAProgramThatIsNamedMustBeThere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "regent")
	t.Setenv(variable, file)
	if f := fails(t, func(t testing.TB) { Start(t) }); !strings.Contains(f.fatal, "$REGENT is "+`"`+file+`": it cannot be run`) {
		t.Errorf("it says %q", f.fatal)
	}
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o700); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	if got, err := find(t.Context(), options{}); got != file || err != nil {
		t.Errorf("$%s is not believed: %q, %v", variable, got, err)
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := os.Rename(file, other); err != nil {
		t.Fatal(err)
	}
	if got, err := find(t.Context(), options{program: other, programGiven: true}); got != other || err != nil {
		t.Errorf("the option does not come before $%s: %q, %v", variable, got, err)
	}
}
