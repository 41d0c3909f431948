package backups

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/kcp-dev/logicalcluster/v3"
	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/server/backup"
	"github.com/regent-project/regent/pkg/server/build"
	"github.com/regent-project/regent/pkg/server/bundle"
)

// logicalClusters are the resource and the keys of all LogicalClusters.
const (
	logicalClusters   = "core.kcp.io/logicalclusters/"
	logicalClusterKey = logicalClusters + corev1alpha1.LogicalClusterName
)

// ExtractOptions say what is extracted.
type ExtractOptions struct {
	// Path is that of the workspace, or the name of its logical cluster.
	Path logicalcluster.Path
	// At is the time to go back to. Zero: the last one.
	At time.Time
	// Identities open the backup.
	Identities []age.Identity
	// SealTo are for whom secrets are sealed in the bundle. None: they are in plain text.
	SealTo []age.Recipient
}

// Extracted is what a bundle has that was extracted.
type Extracted struct {
	bundle.Header
	Objects int `json:"objects"`
	// Unreadable are the keys of what could not be decoded, and is not in the bundle.
	Unreadable []string `json:"unreadable,omitempty"`
}

// Extract writes the bundle of a workspace as it was at a time. It changes nothing in the directory, which may be
// written meanwhile.
func Extract(directory string, to io.Writer, o ExtractOptions) (*Extracted, error) {
	all, err := readContents(directory)
	if err != nil {
		return nil, err
	}
	m, err := all.at(o.At)
	if err != nil {
		return nil, err
	}
	cluster, path, err := m.find(o)
	if err != nil {
		return nil, err
	}
	is, err := m.read(cluster, o.Identities)
	if err != nil {
		return nil, err
	}
	out := &Extracted{Header: bundle.Header{
		Version: bundle.Version, Cluster: cluster, Path: path, Shard: all.shard, Revision: m.revision, Time: m.time, WrittenBy: build.Info().GitVersion,
	}}
	return out, out.write(to, is, o.SealTo)
}

func (e *Extracted) write(to io.Writer, is map[string]backup.Record, sealTo []age.Recipient) error {
	w, err := bundle.NewWriter(to, e.Header)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(is)) {
		r := is[key]
		isKey := bundle.CheckKey(key) == nil
		if r.Unreadable != "" || !isKey {
			e.Unreadable = append(e.Unreadable, key)
		}
		if !isKey {
			continue
		}
		object := r.Object
		if object.Deleted { // a bundle says no more of it
			object.Object = nil
		}
		if r.Secret && object.Object != nil && len(sealTo) > 0 {
			if object, err = bundle.Seal(object, sealTo); err != nil {
				return err
			}
		}
		if err := w.Add(object); err != nil {
			return err
		}
		e.Objects++
	}
	return w.Close()
}

// newest has the newest record of each object.
type newest map[string]backup.Record

func (n newest) learn(id string, r backup.Record) {
	if was, ok := n[id]; !ok || was.Revision < r.Revision {
		n[id] = r
	}
}

// there returns what was not deleted.
func (n newest) there() map[string]backup.Record {
	maps.DeleteFunc(n, func(_ string, r backup.Record) bool { return r.Gone })
	return n
}

// placed is where a logical cluster was, by its newest record.
type placed struct {
	revision int64
	path     string // empty: it was deleted
}

// find returns the logical cluster that had a path at the moment, and the path of the one that has a name.
func (m *moment) find(o ExtractOptions) (cluster, path string, err error) {
	found := map[string]placed{} // without the objects: there may be a million
	wants := func(line []byte) bool {
		return bytes.Contains(line[:min(len(line), 200)], []byte(`"key":"`+logicalClusters))
	}
	err = m.each(o.Identities, func(first, next string) bool {
		return first <= logicalClusters+"\xff" && (next == "" || next >= logicalClusters)
	}, wants, func(r backup.Record) {
		if r.Key == logicalClusterKey && found[r.Cluster].revision < r.Revision {
			found[r.Cluster] = placed{r.Revision, pathOf(r)}
		}
	})
	if err != nil {
		return "", "", err
	}
	paths := map[string]string{} // of those that match, by name
	for name, is := range found {
		if is.path != "" && (name == o.Path.String() || is.path == o.Path.String()) {
			paths[name] = is.path
		}
	}
	if len(paths) > 1 {
		return "", "", fmt.Errorf("several logical clusters said that they are %s at %s: give the name of one of %s", o.Path, m.time.Format(time.RFC3339), strings.Join(slices.Sorted(maps.Keys(paths)), ", "))
	}
	for name, path := range paths {
		return name, path, nil
	}
	return "", "", fmt.Errorf("there was no workspace %s at %s", o.Path, m.time.Format(time.RFC3339))
}

// pathOf returns the path of a LogicalCluster; of one without a path, or that cannot be read, the name.
func pathOf(r backup.Record) string {
	if r.Gone {
		return ""
	}
	var is struct{ Metadata metav1.ObjectMeta }
	if json.Unmarshal(r.Object.Object, &is) != nil {
		return r.Cluster
	}
	return cmp.Or(is.Metadata.Annotations[core.LogicalClusterPathAnnotationKey], r.Cluster)
}

// read returns all objects that a logical cluster had at the moment, by key.
func (m *moment) read(cluster string, identities []age.Identity) (map[string]backup.Record, error) {
	is, begin := newest{}, []byte(`{"cluster":"`+cluster+`",`)
	err := m.each(identities, func(first, next string) bool { return next == "" || backup.MayHave(first, next, cluster) },
		func(line []byte) bool { return bytes.HasPrefix(line, begin) },
		func(r backup.Record) { is.learn(r.Key, r) })
	return is.there(), err
}

// each calls visit with the records of the moment's base, of its frames that are wanted, and of its changes.
func (m *moment) each(identities []age.Identity, wanted func(first, next string) bool, wants func(line []byte) bool, visit func(backup.Record)) error {
	all := func(r backup.Record) error { visit(r); return nil }
	if err := m.eachOfBase(identities, wanted, wants, all); err != nil {
		return err
	}
	return m.eachChange(identities, wants, all)
}

// eachOfBase calls visit with the records of the base. Nil functions want all.
func (m *moment) eachOfBase(identities []age.Identity, wanted func(first, next string) bool, wants func(line []byte) bool, visit func(backup.Record) error) error {
	var some []frameIn
	for i := range m.base.frames {
		next := ""
		if i+1 < len(m.base.frames) {
			next = m.base.frames[i+1].First
		}
		if frame := &m.base.frames[i]; frame.First != "" && (wanted == nil || wanted(frame.First, next)) {
			some = append(some, frameIn{frame, m.base})
		}
	}
	return readFrames(some, identities, wants, visit)
}

// eachChange calls visit with what was written since the base was begun, in the order in which it was.
func (m *moment) eachChange(identities []age.Identity, wants func(line []byte) bool, visit func(backup.Record) error) error {
	var some []frameIn
	for _, frame := range m.changes {
		if frame.Revision > m.base.first().Revision && frame.After < frame.Revision {
			some = append(some, frame)
		}
	}
	return readFrames(some, identities, wants, visit)
}

// readFrames calls visit with the records of frames, which are in the order of their files.
func readFrames(some []frameIn, identities []age.Identity, wants func(line []byte) bool, visit func(backup.Record) error) (err error) {
	var of *file
	var opened *os.File
	defer func() {
		if opened != nil {
			_ = opened.Close() // nothing was written
		}
	}()
	for _, frame := range some {
		if frame.of != of {
			if opened != nil {
				_ = opened.Close() // nothing was written
			}
			if opened, err = os.Open(frame.of.name); err != nil {
				return fmt.Errorf("open a file of the backup: %w", err)
			}
			of = frame.of
		}
		err := frame.Read(opened, identities, wants, visit)
		if errors.Is(err, bundle.ErrSealed) {
			return fmt.Errorf("open the backup: %w", err)
		}
		if errors.Is(err, backup.ErrDamaged) {
			return fmt.Errorf("%s: %w", frame.of.name, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
