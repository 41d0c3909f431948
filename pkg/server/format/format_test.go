package format

import (
	"errors"
	"strings"
	"testing"
)

// I15: a version reads what the version before it has written, and refuses what it would misread.
func TestAVersionReadsItsFormatsAndNamesTheVersionsThatReadOthersI15(t *testing.T) {
	of02 := Formats{Version: "v0.2.0", Oldest: 1, Newest: 2, Since: "v0.2.0"}
	of04 := Formats{Version: "v0.4.0", Oldest: 3, Newest: 3, Since: "v0.3.0", Until: "v0.3.5"}
	for name, c := range map[string]struct {
		reader Formats
		record Record
		names  []string // what the error must name; none: it reads it
	}{
		"its own":                           {of02, Record{2, "v0.2.0"}, nil},
		"the version's before":              {of02, Record{1, "v0.1.0"}, nil},
		"from before there were formats":    {of02, Record{}, nil},
		"of a newer version":                {of02, Record{3, "v0.3.0"}, []string{"format 3", "from v0.3.0", "this is v0.2.0", "formats 1 to 2"}},
		"of a version that is not named":    {of02, Record{9, ""}, []string{"format 9", "newer versions"}},
		"two versions before":               {of04, Record{2, "v0.2.0"}, []string{"format 2", "up to v0.3.5", "this is v0.4.0", "reads format 3:"}},
		"older than all formats":            {of04, Record{}, []string{"format 1", "up to v0.3.5"}},
		"no format that was ever given":     {of04, Record{-1, ""}, []string{"format -1"}},
		"what this build begins a shard in": {Ours("v0.1.0"), Ours("v0.1.0").New(), nil},
	} {
		err := c.reader.Check(c.record)
		if (err != nil) != (len(c.names) > 0) || err != nil && !errors.Is(err, ErrUnreadable) {
			t.Errorf("%s: %v", name, err)
		}
		for _, text := range c.names {
			if err != nil && !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %q does not say %q", name, err, text)
			}
		}
	}
}

// What errors tell operators to install has to be there.
func TestEachFormatNamesTheVersionsThatReadIt(t *testing.T) {
	f := Ours("this")
	if f.Since == "" || f.Newest < f.Oldest || f.Oldest < first || (f.Oldest > first) != (f.Until != "") {
		t.Errorf("%+v", f)
	}
}
