package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/server/pki"
)

// snapshot is what a front knows, as it is kept on disk: a front that starts while shards are down, the root shard too,
// serves the others.
type snapshot struct {
	// Version is the snapshotVersion of whoever wrote it; 0 stands for 1.
	Version int `json:"version"`
	// Authority is the fingerprint of the front's authority: with another membership the snapshot is worth nothing.
	Authority string       `json:"authority"`
	At        time.Time    `json:"at"`
	Shards    []savedShard `json:"shards"`
	Clusters  []savedEntry `json:"clusters"`
}

// snapshotVersion is raised when older versions would misread a snapshot. They ignore fields that they do not know.
const snapshotVersion = 1

type savedShard struct {
	Name      string   `json:"name"`
	Authority string   `json:"authority,omitempty"`
	URLs      []string `json:"urls"`
}

type savedEntry struct {
	Shard   int    `json:"s"` // which of Shards
	Cluster string `json:"c"`
	Path    string `json:"p,omitempty"`
}

// snapshotPeriod is the least time between two snapshots, if something has changed. The pause after one is also
// snapshotShare times as long as it took: one of millions of clusters takes seconds.
const (
	snapshotPeriod = 5 * time.Second
	snapshotShare  = 20
)

// snapshotsInAge is how many snapshots are written in the time after which one is too old, also if nothing changes.
const snapshotsInAge = 8

// readSnapshot reads a snapshot. There is none if the file is not there, or another membership's.
func readSnapshot(file string, authority *pki.Authority) (*snapshot, error) {
	content, err := os.ReadFile(filepath.Clean(file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the snapshot: %w", err)
	}
	s := &snapshot{}
	if err := json.Unmarshal(content, s); err != nil {
		return nil, fmt.Errorf("%s is no snapshot, remove it: %w", file, err)
	}
	if s.Version > snapshotVersion {
		return nil, fmt.Errorf("%s is of a newer version of regent front, and will be replaced", file)
	}
	if s.Authority != authority.Fingerprint() {
		return nil, nil
	}
	for _, e := range s.Clusters {
		if e.Shard < 0 || e.Shard >= len(s.Shards) {
			return nil, fmt.Errorf("%s names a shard that it does not list, remove it", file)
		}
	}
	return s, nil
}

// fill puts the clusters of a snapshot into the index.
func (s *snapshot) fill(x *index) {
	for _, e := range s.Clusters {
		x.set(logicalcluster.Name(e.Cluster), entry{shard: s.Shards[e.Shard].Name, path: e.Path})
	}
}

// keepSnapshots writes what has changed every few seconds, until ctx ends, and then once more.
func (f *Front) keepSnapshots(ctx context.Context) {
	if f.cfg.SnapshotFile == "" {
		return
	}
	written, failed, at := uint64(0), false, time.Time{}
	write := func() {
		version := f.index.changes()
		if version == written && (time.Since(at) < f.cfg.SnapshotAge/snapshotsInAge || !f.hearsRoot()) {
			return
		}
		err := f.writeSnapshot()
		if err != nil && !failed {
			klog.FromContext(ctx).Error(err, "The front keeps no snapshot: if it restarts while a shard is down, it does not know that shard's clusters")
		}
		if failed = err != nil; !failed {
			written, at = version, time.Now()
		}
	}
	for pause := snapshotPeriod; ; {
		select {
		case <-ctx.Done():
			write()
			return
		case <-time.After(pause):
		}
		began := time.Now()
		write()
		pause = max(snapshotPeriod, snapshotShare*time.Since(began))
	}
}

// writeSnapshot replaces the file by rename, so that a front that is killed leaves the old one or the new one.
func (f *Front) writeSnapshot() (err error) {
	if f.hearsRoot() {
		f.heardRoot = time.Now().UTC()
	}
	s := snapshot{Version: snapshotVersion, Authority: f.cfg.keys.now().authority.Fingerprint(), At: f.heardRoot}
	place := map[string]int{}
	f.mu.RLock()
	for name, shard := range f.shards {
		place[name] = len(s.Shards)
		s.Shards = append(s.Shards, savedShard{Name: name, Authority: shard.fingerprint, URLs: shard.urls})
	}
	f.mu.RUnlock()
	f.index.each(func(name logicalcluster.Name, e entry) {
		if n, ok := place[e.shard]; ok && !e.deleting {
			s.Clusters = append(s.Clusters, savedEntry{Shard: n, Cluster: name.String(), Path: e.path})
		}
	})
	content, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("cannot encode the snapshot: %w", err)
	}
	temporary := f.cfg.SnapshotFile + ".new"
	if err := writeSynced(temporary, content); err != nil {
		return fmt.Errorf("cannot write the snapshot: %w", err)
	}
	if err := os.Rename(temporary, f.cfg.SnapshotFile); err != nil {
		return fmt.Errorf("cannot write the snapshot: %w", err)
	}
	return nil
}

func writeSynced(name string, content []byte) error {
	file, err := os.OpenFile(filepath.Clean(name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Sync(), file.Close())
}
