package backups

import (
	"fmt"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/kcp-dev/logicalcluster/v3"

	"github.com/regent-project/regent/pkg/server/backup"
	"github.com/regent-project/regent/pkg/server/storage"
)

// events begins the keys of Events: they end by themselves after an hour, and would not in an etcd that is filled.
const events = "core/events/"

// Shard is a whole shard as it was at a time.
type Shard struct {
	Time     time.Time
	Revision int64
	// Objects is how many Each has given. Left are the keys of what could not be decoded, with their logical
	// clusters.
	Objects int
	Left    []string

	moment     *moment
	identities []age.Identity
}

// OpenShard finds a shard, by its name, as it was at a time (zero: the last one), and checks that the backup can be
// opened.
func OpenShard(directory string, at time.Time, identities []age.Identity, name string) (*Shard, error) {
	all, err := readContents(directory)
	if err != nil {
		return nil, err
	}
	m, err := all.at(at)
	if err != nil {
		return nil, err
	}
	if all.shard != name {
		return nil, fmt.Errorf("the backup is of shard %s, and the flags are of shard %s: give --shard-name=%[1]s behind --", all.shard, name)
	}
	none := func(backup.Record) error { return nil }
	if err := readFrames([]frameIn{{m.base.first(), m.base}}, identities, nil, none); err != nil {
		return nil, err
	}
	return &Shard{Time: m.time, Revision: m.revision, moment: m, identities: identities}, nil
}

// Each calls take with all objects of the shard, each once. Call it once.
func (s *Shard) Each(take func(storage.StoredIn) error) error {
	// What has changed since the base was begun is held in memory; the base, which is large, is not.
	changed := newest{}
	if err := s.moment.eachChange(s.identities, nil, func(r backup.Record) error {
		changed.learn(r.Cluster+"/"+r.Key, r)
		return nil
	}); err != nil {
		return err
	}
	give := func(r backup.Record) error {
		switch {
		case r.Gone, strings.HasPrefix(r.Key, events):
			return nil
		case r.Unreadable != "":
			s.Left = append(s.Left, r.Cluster+" "+r.Key)
			return nil
		}
		s.Objects++
		return take(storage.StoredIn{Cluster: logicalcluster.Name(r.Cluster), Stored: storage.Stored{Key: r.Key, JSON: r.Object.Object}})
	}
	if err := s.moment.eachOfBase(s.identities, nil, nil, func(r backup.Record) error {
		id := r.Cluster + "/" + r.Key
		if now, ok := changed[id]; ok && now.Revision >= r.Revision {
			return nil // it comes below
		}
		delete(changed, id)
		return give(r)
	}); err != nil {
		return err
	}
	for _, r := range changed {
		if err := give(r); err != nil {
			return err
		}
	}
	return nil
}
