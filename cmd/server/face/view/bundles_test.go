package view_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"

	"github.com/regent-project/regent/cmd/server/bundles"
	"github.com/regent-project/regent/cmd/server/face/view"
	"github.com/regent-project/regent/pkg/server/bundle"
)

func TestBundlesAndWhatBecomesOfThem(t *testing.T) {
	var text bytes.Buffer
	look, path := view.Look{Format: view.Table}, logicalcluster.NewPath("root:team")
	header := bundle.Header{Cluster: "2xk", Path: "root:team", Shard: "root", Revision: 7, Time: time.Unix(1_000_000_000, 0), WrittenBy: "v0.3.0"}
	inspected := []bundles.Inspected{
		{Header: header, Objects: 3, Sealed: 1, Deleted: 1, Unreadable: 1, Resources: []bundles.Resource{{Name: "configmaps", Objects: 2, Bytes: 300}, {Name: "secrets", Objects: 1, Bytes: 200}}},
		{Header: header, Objects: 0},
	}
	report := bundles.Report{
		Created: 3, Updated: 1, Deleted: 1,
		Left:    []bundles.Leftover{{Resource: "events", Objects: 9, Why: "they are about objects of the old place"}},
		Changed: []bundles.Note{{Path: "root:team", Key: "core/configmaps/default/a", Why: "it has no owners"}},
	}
	for n := range 25 {
		report.Refused = append(report.Refused, bundles.Note{Path: "root:team", Key: fmt.Sprintf("core/secrets/default/s%02d", n), Why: "no room"})
	}
	restored := &bundles.Restored{Report: bundles.Report{Created: 1, Deleted: 1}, Same: 5, Create: []string{"core/configmaps/default/a"}, Delete: []string{"core/configmaps/default/b"}}
	for _, show := range []func() error{
		func() error { return view.Bundles(&text, look, inspected) },
		func() error { return view.Imported(&text, look, path, &report) },
		func() error { return view.Restored(&text, look, path, restored, true) },
		func() error { return view.Restored(&text, look, path, restored, false) },
	} {
		if err := show(); err != nil {
			t.Fatal(err)
		}
		text.WriteString("\n")
	}
	golden(t, "bundles", text.String())
	narrow(t, "bundles", text.String())
}
