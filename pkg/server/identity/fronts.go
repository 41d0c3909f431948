package identity

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/pkg/server/status"
)

// heardFronts remembers when each front last sent a request to this replica, and of which version it said it is.
type heardFronts struct{ byName, versions sync.Map } // of time.Time and string

func (h *heardFronts) hear(front string) { h.byName.Store(front, time.Now()) }

// longestVersion is how many bytes of a version are kept.
const longestVersion = 100

// hearVersion notes the version of a front, which asks for itself.
func (h *heardFronts) hearVersion(front, agent string) {
	if version, ok := strings.CutPrefix(agent, clusters.FrontAgent); ok {
		h.versions.Store(front, version[:min(len(version), longestVersion)])
	}
}

func (h *heardFronts) version(front string) string {
	told, _ := h.versions.Load(front)
	version, _ := told.(string)
	return version
}

func (h *heardFronts) last(front string) time.Time {
	at, _ := h.byName.Load(front)
	when, _ := at.(time.Time)
	return when
}

// list returns the fronts that are members of the installation, as the root shard's Shard object has them, ordered by
// name.
func (g *members) list() []status.Front {
	shards := g.late.shards()
	if shards == nil {
		return nil
	}
	root, ok := shards.Get(clusters.Key{Cluster: clusters.Root, Name: g.root})
	if !ok {
		root, ok = shards.Get(clusters.Key{Cluster: clusters.SystemShards, Name: g.root})
	}
	if !ok {
		return nil
	}
	var out []status.Front
	for annotation := range root.Annotations {
		if name, ok := strings.CutPrefix(annotation, clusters.FrontAnnotationPrefix); ok {
			out = append(out, status.Front{Name: name, Heard: g.fronts.last(name), Version: g.fronts.version(name)})
		}
	}
	slices.SortFunc(out, func(a, b status.Front) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// mayAsk reports whether a member may read how this replica is doing, and ask about its service accounts and exports. A
// replica is asked for itself by its own shard, and for its shard by other shards. So whoever answers one question of a
// member asks no further questions of the same kind.
func (g *members) mayAsk(member pki.Member, path string) bool {
	if member.Kind != pki.KindShard {
		return false
	}
	if member.Name == g.own {
		return path == status.ReplicaPath
	}
	return slices.Contains([]string{status.ShardPath, status.TermsPath, status.WorkspacesPath, status.TokenKeysPath, status.AccountPath, status.ExportPath}, path)
}

// mayTell reports whether a member may tell this replica something: a replica of the same shard tells that it leaves.
func (g *members) mayTell(member pki.Member, path string) bool {
	return member.Kind == pki.KindShard && member.Name == g.own && path == status.FarewellPath
}
