package front

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
)

// I15: a front takes what a version before it has kept, and what a newer one has, if that only adds to it. It begins
// without what it would misread, and without what is no snapshot, and says so.
func TestAFrontTakesTheSnapshotOfAnotherVersionI15(t *testing.T) {
	m := newMembers(t)
	file := filepath.Join(t.TempDir(), "snapshot")
	authority := m.cfg.keys.now().authority
	const rest = `"shards":[{"name":"eu1","urls":["https://127.0.0.1:1"]}],"clusters":[{"s":0,"c":"one","p":"root:one"}]}`
	begin := `{"authority":"` + authority.Fingerprint() + `",`
	for name, c := range map[string]struct {
		content string
		says    string // the error; empty: it is taken
	}{
		"before there were versions": {begin + rest, ""},
		"this version":               {begin + `"version":1,` + rest, ""},
		"what adds fields":           {begin + `"version":1,"later":{"a":1},` + strings.Replace(rest, `"s":0`, `"s":0,"later":[1]`, 1), ""},
		"a newer version":            {begin + `"version":2,` + rest, "newer version"},
		"another shape":              {begin + `"version":1,"shards":{"eu1":{}}}`, "remove it"},
		"half a file":                {begin, "remove it"},
	} {
		if err := os.WriteFile(file, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := readSnapshot(file, authority)
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, want an error with %q", name, err, c.says)
			}
			continue
		}
		if err != nil || s == nil {
			t.Errorf("%s: %v, %v", name, s, err)
			continue
		}
		x := newIndex("root")
		s.fill(x)
		known := map[logicalcluster.Name]entry{}
		x.each(func(name logicalcluster.Name, e entry) { known[name] = e })
		if e := known["one"]; len(known) != 1 || e.shard != "eu1" || e.path != "root:one" {
			t.Errorf("%s: it knows %+v", name, known)
		}
	}
}
