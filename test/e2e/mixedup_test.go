package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/regent-project/regent/test/e2e/harness"
)

// A replica that is given what is another shard's refuses to start. One that answers in another shard's place is not
// believed. Both say what to change.
func TestShardsThatAreMixedUpAreRefusedOrNotBelieved(t *testing.T) {
	t.Parallel()
	i := harness.Install(t, "eu1", "us1")
	eu1, us1 := i.Others[0], i.Others[1]
	stranger := harness.Install(t) // another installation
	theirs := filepath.Join(t.TempDir(), "theirs.yaml")
	out, err := stranger.TryRegent("shard", "add", "eu1", "--replica=https://127.0.0.1:1", "--pki-directory="+filepath.Join(stranger.Root.Replicas[0].Root, "pki"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(theirs, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		of     *harness.ShardMember
		etcd   *harness.Etcd
		args   []string
		wanted []string
	}{
		"with another shard's etcd":             {eu1, us1.Etcd, nil, []string{`it holds shard "us1", this replica is of shard "eu1"`, "--etcd-prefix"}},
		"with the root shard's etcd":            {eu1, i.Root.Etcd, nil, []string{`it holds shard "root"`}},
		"with another shard's membership":       {eu1, eu1.Etcd, us1.Args, []string{"--shard-name"}},
		"with another installation's":           {eu1, eu1.Etcd, []string{"--membership=" + theirs}, []string{"another certificate authority"}},
		"the root shard's with a member's etcd": {i.Root, eu1.Etcd, nil, []string{`it holds shard "eu1"`}},
	} {
		shard := harness.NewShard(c.etcd.URL)
		if shard.Name, shard.Args = c.of.Name, c.of.Args; c.args != nil {
			shard.Args = c.args
		}
		r := shard.Launch(t, "mixed-up")
		if code := r.Wait(); code != 1 && code != 2 {
			t.Errorf("%s: it ended with %d", name, code)
		}
		for _, text := range c.wanted {
			if !strings.Contains(r.Log(), text) {
				t.Errorf("%s: it does not say %q:\n%s", name, text, r.Log())
			}
		}
	}

	// All see us1's replicas where they look for eu1.
	set := func(m *harness.ShardMember, at *harness.ShardMember) {
		t.Helper()
		args := []string{"shard", "set", m.Name}
		for _, r := range at.Replicas {
			args = append(args, "--replica="+r.URL)
		}
		if _, err := i.TryRegent(args...); err != nil {
			t.Fatal(err)
		}
	}
	create(t, i.Root.Replicas, "root", "before")
	awaitReady(t, i.Root.Replicas, "root", "before")
	set(eu1, us1)
	for _, m := range []*harness.ShardMember{i.Root, us1} {
		for _, r := range m.Replicas {
			harness.Eventually(t, r.Name()+" says who answers in eu1's place", func() bool {
				return len(r.Lines("at the address of shard eu1: shard us1 answers", "regent shard set eu1")) > 0
			})
		}
	}
	if out, err := i.TryRegent("shard", "list", "-o", "json"); err != nil || !strings.Contains(out, "at the address of shard eu1") {
		t.Errorf("regent shard list says %s (%v)", out, err)
	}
	create(t, i.Root.Replicas, "root", "meanwhile")
	if _, shard := awaitReady(t, i.Root.Replicas, "root", "meanwhile"); shard == "eu1" {
		t.Error("a workspace was assigned to a shard that nobody hears")
	}
	set(eu1, eu1)
	for _, m := range i.All() {
		m.WaitHeard(t, len(i.Others))
	}
	awaitReady(t, i.Root.Replicas, "root", "before")
}
