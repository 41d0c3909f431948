package view

import (
	"fmt"
	"io"
	"time"

	"github.com/regent-project/regent/cmd/server/backups"
)

// Backup writes what a directory with a backup has.
func Backup(w io.Writer, look Look, b *backups.Inspected) error {
	p := &page{Look: look}
	p.line("Shard %s: %d bases, %d frames, %d bytes", b.Shard, b.Bases, b.Frames, b.Bytes)
	if len(b.Spans) == 0 {
		p.line("%s", look.warning("It can go back to no time yet: there is no whole base."))
		return p.flush(w)
	}
	rows := [][]string{{"FROM", "TO", "REVISIONS"}}
	for _, s := range b.Spans {
		rows = append(rows, []string{s.From.UTC().Format(time.RFC3339), s.To.UTC().Format(time.RFC3339), fmt.Sprintf("%d-%d", s.FromRevision, s.ToRevision)})
	}
	p.line("It can go back to any time")
	p.table("  ", rows)
	return p.flush(w)
}

// Store writes what a store has of a backup.
func Store(w io.Writer, look Look, b *backups.InStore) error {
	p := &page{Look: look}
	p.line("%d bases, %d files of changes, %d bytes", b.Bases, b.Changes, b.Bytes)
	p.line("Last written %s", b.Written.UTC().Format(time.RFC3339))
	if b.Bases == 0 {
		p.line("%s", look.warning("It can go back to no time yet: there is no whole base."))
	}
	for _, gap := range b.Gaps {
		p.line("%s", look.warning("It lacks "+gap))
	}
	return p.flush(w)
}
