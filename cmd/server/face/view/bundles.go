package view

import (
	"fmt"
	"io"

	"github.com/kcp-dev/logicalcluster/v3"

	"github.com/regent-project/regent/cmd/server/bundles"
)

// mostNotes is how many notes of a kind are printed.
const mostNotes = 20

// Bundles writes what is in the bundles of a file.
func Bundles(w io.Writer, look Look, all []bundles.Inspected) error {
	p := &page{Look: look}
	for i, b := range all {
		if i > 0 {
			p.line("")
		}
		p.line("Workspace %s: logical cluster %s of shard %s, at revision %d", b.Path, b.Cluster, b.Shard, b.Revision)
		p.line("Exported %s by %s; %d objects, %d of them sealed", b.Time.UTC().Format("2006-01-02 15:04:05 MST"), b.WrittenBy, b.Objects, b.Sealed)
		if b.Deleted > 0 {
			p.line("%d objects that every workspace has were deleted.", b.Deleted)
		}
		if b.Unreadable > 0 {
			p.line("%s", look.warning(fmt.Sprintf("%d objects could not be read when it was exported.", b.Unreadable)))
		}
		rows := [][]string{{"RESOURCE", "OBJECTS", "BYTES"}}
		for _, r := range b.Resources {
			rows = append(rows, []string{r.Name, fmt.Sprint(r.Objects), fmt.Sprint(r.Bytes)})
		}
		p.line("")
		p.table("", rows)
	}
	return p.flush(w)
}

// Imported writes what has become of what was imported into a workspace.
func Imported(w io.Writer, look Look, to logicalcluster.Path, r *bundles.Report) error {
	p := &page{Look: look}
	p.line("Workspace %s: %d objects created, %d updated, %d deleted.", to, r.Created, r.Updated, r.Deleted)
	p.report(r)
	return p.flush(w)
}

// Restored writes what has become of a workspace that was put back, or with plan what would be done.
func Restored(w io.Writer, look Look, to logicalcluster.Path, r *bundles.Restored, plan bool) error {
	p := &page{Look: look}
	if plan {
		p.line("Workspace %s: %d objects would be created, %d updated, %d deleted, and %d are as they were.", to, len(r.Create), len(r.Update), len(r.Delete), r.Same)
		for _, some := range []struct {
			what string
			keys []string
		}{{"create", r.Create}, {"update", r.Update}, {"delete", r.Delete}} {
			for _, key := range some.keys {
				p.line("  %s %s", some.what, key)
			}
		}
	} else {
		p.line("Workspace %s: %d objects created, %d updated, %d deleted, and %d are as they were.", to, r.Created, r.Updated, r.Deleted, r.Same)
	}
	p.report(&r.Report)
	return p.flush(w)
}

func (p *page) report(r *bundles.Report) {
	for _, left := range r.Left {
		p.line("  %d %s were left behind: %s.", left.Objects, left.Resource, left.Why)
	}
	p.notes("%d objects were changed:", r.Changed)
	p.notes(p.warning("%d objects were refused:"), r.Refused)
}

func (p *page) notes(title string, all []bundles.Note) {
	if len(all) == 0 {
		return
	}
	p.line("  "+title, len(all))
	for i, n := range all {
		if i == mostNotes {
			p.line("    and %d more", len(all)-mostNotes)
			return
		}
		p.line("    %s %s: %s", n.Path, n.Key, n.Why)
	}
}
