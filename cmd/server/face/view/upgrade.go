package view

import (
	"fmt"
	"io"

	"github.com/regent-project/regent/pkg/server/status"
)

// Versions are what runs in an installation, and how far the format of each shard can be raised.
type Versions struct {
	// Asker is the version of the program that asks.
	Asker     string           `json:"asker"`
	Processes []Process        `json:"processes"`
	Shards    []status.Upgrade `json:"shards"`
}

// Process is a replica, or a front.
type Process struct {
	// Name is front/<name>, or <shard>/<replica>. Version is empty if it is not known.
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Reads are the formats that a replica reads. Fault says why it could not be asked.
	Reads string `json:"reads,omitempty"`
	Fault string `json:"fault,omitempty"`
}

// VersionsOf returns what runs in an installation.
func VersionsOf(of status.Installation, asker string) Versions {
	out := Versions{Asker: asker}
	for _, f := range of.Fronts {
		out.Processes = append(out.Processes, Process{Name: "front/" + f.Name, Version: f.Version})
	}
	for _, s := range of.Shards {
		for _, r := range s.Replicas {
			one := Process{Name: s.Name + "/" + r.Name, Version: r.Version, Fault: r.Fault}
			if f := r.Format; f != nil {
				one.Reads = fmt.Sprint(f.Newest)
				if f.Oldest < f.Newest {
					one.Reads = fmt.Sprintf("%d to %d", f.Oldest, f.Newest)
				}
			}
			out.Processes = append(out.Processes, one)
		}
		out.Shards = append(out.Shards, status.UpgradeOf(s))
	}
	return out
}

// Upgrade writes what runs, and what keeps shards from newer formats.
func Upgrade(w io.Writer, look Look, v Versions) error {
	if !look.IsFor() {
		return Encode(w, look.Format, v)
	}
	p := &page{Look: look}
	rows := [][]string{{"PROCESS", "VERSION", "READS FORMATS"}, {"this program", v.Asker, "-"}}
	for _, one := range v.Processes {
		rows = append(rows, []string{one.Name, orDash(one.Version), orDash(one.Reads)})
	}
	p.table("", rows)
	p.line("")
	for _, u := range v.Shards {
		p.upgrade(u)
	}
	return p.flush(w)
}

func (p *page) upgrade(u status.Upgrade) {
	is := fmt.Sprintf("Shard %s is in format %d", u.Shard, u.From)
	if u.ReadableFrom != "" {
		is += ", which versions from " + u.ReadableFrom + " on read"
	}
	switch {
	case u.From == 0: // it does not answer
		p.wrap("", u.HeldBy[0])
		return
	case u.IsFinal():
		p.wrap("", is+". Its replicas read no newer one: there is nothing to finalize.")
		return
	case len(u.HeldBy) == 0:
		p.wrap("", fmt.Sprintf("%s. All its replicas read format %d. When you would not go back any more:", is, u.To))
		p.line("  $ regent upgrade finalize --shard=%s", u.Shard)
		return
	default:
		p.wrap("", fmt.Sprintf("%s. It is kept from format %d, which versions from %s on read:", is, u.To, u.Since))
	}
	for _, why := range u.HeldBy {
		p.wrap("  ", why)
	}
}

// FactsOfUpgrade are what counts as a change.
func FactsOfUpgrade(v Versions) (facts []Fact) {
	for _, one := range v.Processes {
		facts = append(facts, Fact{Key: one.Name, Text: "runs " + orElse(one.Version, "an unknown version")})
	}
	for _, u := range v.Shards {
		facts = append(facts, Fact{Key: "shard " + u.Shard, Text: fmt.Sprintf("in format %d, replicas read up to %d, kept back for %d reasons", u.From, u.To, len(u.HeldBy))})
	}
	return facts
}
