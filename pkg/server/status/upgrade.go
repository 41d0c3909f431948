package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	utilversion "k8s.io/apimachinery/pkg/util/version"
)

// Format says in which format the shard has stored what it has (package format), and which formats the replica reads.
type Format struct {
	// Stored is the format as the replica has last read it, and ReadableFrom the oldest version that reads it.
	Stored       int    `json:"stored"`
	ReadableFrom string `json:"readableFrom,omitempty"`
	// The replica reads all from Oldest to Newest. Since is the oldest version that reads Newest.
	Oldest int    `json:"oldest"`
	Newest int    `json:"newest"`
	Since  string `json:"since,omitempty"`
}

// firstFormat is the format of replicas that name none, because their version is before v0.2.0.
const firstFormat = 1

// Upgrade says how far the format of a shard can be raised. Once it is, replicas that do not read it end.
type Upgrade struct {
	Shard string `json:"shard"`
	// From is the format that the shard is in, and ReadableFrom the oldest version that reads it.
	From         int    `json:"from"`
	ReadableFrom string `json:"readableFrom,omitempty"`
	// To is the newest format that any of its replicas reads, and Since the oldest version that reads that. To is
	// From if there is no newer one.
	To    int    `json:"to"`
	Since string `json:"since,omitempty"`
	// HeldBy says what keeps the shard from going on to To, a sentence each.
	HeldBy []string `json:"heldBy,omitempty"`
}

// IsFinal reports whether the shard is in the newest format that its replicas read.
func (u Upgrade) IsFinal() bool { return u.To == u.From && len(u.HeldBy) == 0 }

// UpgradeOf returns how far the format of a shard can be raised, by what its replicas say. All of them have to be
// heard: one that does not answer may run a version that would end.
func UpgradeOf(s Shard) Upgrade {
	u := Upgrade{Shard: s.Name}
	if s.Fault != "" {
		u.HeldBy = []string{fmt.Sprintf("Shard %s does not answer: %s", s.Name, s.Fault)}
		return u
	}
	for _, r := range s.Replicas {
		if f := formatOf(r); r.Fault == "" {
			if f.Stored > u.From {
				u.From, u.ReadableFrom = f.Stored, f.ReadableFrom
			}
			if f.Newest > u.To {
				u.To, u.Since = f.Newest, f.Since
			}
		}
	}
	for _, r := range s.Replicas {
		switch f := formatOf(r); {
		case r.Fault != "":
			u.HeldBy = append(u.HeldBy, fmt.Sprintf("Replica %s/%s does not answer, and may run a version that does not read format %d: start it, or wait until it is listed no more.", s.Name, r.Name, u.To))
		case f.Newest < u.To:
			u.HeldBy = append(u.HeldBy, fmt.Sprintf("Replica %s/%s runs %s, which reads no format after %d: upgrade it.", s.Name, r.Name, r.Version, f.Newest))
		}
	}
	if u.To <= u.From { // those that are silent keep nothing back
		u.To, u.Since, u.HeldBy = u.From, u.ReadableFrom, nil
	}
	return u
}

// formatOf returns what a replica says of formats, or what versions have that say nothing.
func formatOf(r Replica) Format {
	if r.Format == nil {
		return Format{Stored: firstFormat, Oldest: firstFormat, Newest: firstFormat}
	}
	return *r.Format
}

// MaxSkew is how many minor versions there may be between two servers of an installation, or one and the program that
// asks it (docs/UPGRADE.md).
const MaxSkew = 1

// Skew returns how many minor versions there are between two versions of Regent, as v1.37.2+regent.v0.1.0. It is not
// known of builds that are of no release.
func Skew(a, b string) (minors int, ok bool) {
	x, y := releaseOf(a), releaseOf(b)
	if x == nil || y == nil {
		return 0, false
	}
	if x.Major() != y.Major() { // there was none yet
		return MaxSkew + 1, true
	}
	return max(int(x.Minor())-int(y.Minor()), int(y.Minor())-int(x.Minor())), true
}

func releaseOf(version string) *utilversion.Version {
	_, release, _ := strings.Cut(version, "+regent.")
	v, err := utilversion.ParseSemantic(release)
	if err != nil {
		return nil
	}
	return v
}

// farthest returns the two of some versions between which there are the most minor versions, the older first, and how
// many these are.
func farthest(versions []string) (older, newer string, minors int) {
	told := slices.DeleteFunc(slices.Clone(versions), func(v string) bool { return releaseOf(v) == nil })
	if len(told) < 2 {
		return "", "", 0
	}
	slices.SortFunc(told, func(a, b string) int {
		x, y := releaseOf(a), releaseOf(b)
		return cmp.Or(cmp.Compare(x.Major(), y.Major()), cmp.Compare(x.Minor(), y.Minor()))
	})
	older, newer = told[0], told[len(told)-1]
	minors, _ = Skew(older, newer)
	return older, newer, minors
}
