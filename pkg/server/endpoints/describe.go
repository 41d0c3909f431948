package endpoints

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/kubernetes"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
	"github.com/regent-project/regent/pkg/server/build"
	"github.com/regent-project/regent/pkg/server/format"
	"github.com/regent-project/regent/pkg/server/history"
	"github.com/regent-project/regent/pkg/server/shards"
	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/pkg/server/terms"
)

// Describer says how this replica is doing. It asks nobody, so that the answer is there when etcd is not.
type Describer struct {
	// Shard, Replica and Instance are names. URL is where other members reach this replica, BaseURL where clients
	// reach the shard. Capacity is how many logical clusters the shard can have; 0 stands for the default.
	Shard, Replica, Instance, URL, BaseURL string
	Capacity                               int64
	// Started is when the replica started.
	Started time.Time
	// Leader stands for the shard's Lease, or those of its ranges. Electing stands for who elects; nil: nobody
	// does. The names of these Leases are namespace/name.
	Leader               Leadership
	Electing             *election.Elector
	Lease, ElectingLease string
	// Terms runs the controllers, and Book has the terms so far, which Kube reads.
	Terms *terms.Runner
	Book  history.Book
	Kube  kubernetes.Interface
	// Informers has the Shard objects and the logical clusters. Others reads other shards; nil: nobody does.
	Informers controllers.Informers
	Others    *shards.Reader
	// Checks are those of /readyz, of what the process knows by itself.
	Checks []healthz.HealthChecker
	// Formats returns which formats this replica reads, and in which one the shard is.
	Formats func() (format.Formats, format.Record)
	// Etcd returns the members of etcd, Aside what is stored there and is no object, Fronts those fronts that were
	// heard, and Certificates when those expire that this replica shows or trusts.
	Etcd         func() []status.Member
	Aside        func() []status.Aside
	Fronts       func() []status.Front
	Certificates func() []status.Certificate
}

// Outline returns the names of this replica, its elections, and the time.
func (d *Describer) Outline() status.Replica {
	known, first := d.Leader.Status(), StatusOf(d.Leader, 0)
	out := status.Replica{Shard: d.Shard, Name: d.Replica, Instance: d.Instance, URL: d.URL, Observed: time.Now(), Election: electionOf(first, d.Lease), Ranges: rangesOf(known)}
	if term, phases, ok := d.Terms.Term(0); ok && term.Epoch() == out.Election.Epoch {
		entry := history.NewEntry(0, term, d.Replica, first.Past, phases)
		out.Election.Term = &entry.Term
	}
	if d.Electing != nil {
		electing := electionOf(d.Electing.Status(), d.ElectingLease)
		out.Electing = &electing
	}
	return out
}

// Describe returns how this replica is doing.
func (d *Describer) Describe(ctx context.Context) status.Replica {
	out := d.Outline()
	out.Version, out.Started = build.Info().GitVersion, d.Started
	out.NotReady, out.Certificates, out.Fronts = d.notReady(ctx), d.Certificates(), d.Fronts()
	out.Etcd, out.Aside = d.Etcd(), d.Aside()
	reads, stored := d.Formats()
	out.Format = &status.Format{
		Stored: int(stored.Format), ReadableFrom: stored.ReadableFrom, Oldest: int(reads.Oldest), Newest: int(reads.Newest), Since: reads.Since,
	}
	for _, s := range d.Terms.Status() {
		out.Controllers = append(out.Controllers, controllerOf(s))
	}
	if d.Others != nil {
		peers := d.Others.Peers()
		for _, name := range slices.Sorted(maps.Keys(peers)) {
			out.Peers = append(out.Peers, status.Peer{Shard: name, Heard: peers[name]})
		}
	}
	return out
}

// TermsSoFar returns the terms of this shard that are remembered, and what this replica sees now.
func (d *Describer) TermsSoFar(ctx context.Context) (status.Terms, error) {
	entries, err := d.Book.Read(ctx, d.Kube)
	if err != nil {
		return status.Terms{}, err
	}
	var now []history.Entry
	for k, r := range d.Leader.Status().Ranges {
		now = append(now, history.Now(k, r.Status))
	}
	told := history.Terms(entries, now...)
	if told == nil {
		told = []status.Term{}
	}
	return status.Terms{Shard: d.Shard, Terms: told}, nil
}

// checkPatience is how long the checks may take together.
const checkPatience = 300 * time.Millisecond

// notReady returns which checks of /readyz fail. Of etcd it says what the process has last seen.
func (d *Describer) notReady(ctx context.Context) []status.Check {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	req := (&http.Request{}).WithContext(ctx)
	var out []status.Check
	for _, check := range d.Checks {
		if err := check.Check(req); err != nil {
			out = append(out, status.Check{Name: check.Name(), Error: clip(err)})
		}
	}
	return out
}

// DescribeShard returns what this replica knows of its shard, as `regent shard list` does.
func (d *Describer) DescribeShard() status.Shard {
	out := status.Shard{Name: d.Shard, URL: d.BaseURL, Clusters: d.Informers.LogicalClusters.Len(), Capacity: int(cmp.Or(d.Capacity, clusters.DefaultCapacity))}
	if own, ok := d.own(clusters.SystemShards); ok {
		out.Cordoned = clusters.IsCordoned(own)
		if told := own.Status.Capacity; told != nil {
			capacity, used := told[clusters.CapacityClusters], told[clusters.UsedClusters]
			out.Capacity, out.Clusters = int(capacity.Value()), int(used.Value())
		}
	}
	if own, ok := d.own(clusters.Root); ok { // of the root shard itself
		out.Cordoned = clusters.IsCordoned(own)
	}
	out.Moves = d.moves()
	return out
}

// own returns the Shard object of this shard.
func (d *Describer) own(cluster logicalcluster.Name) (*corev1alpha1.Shard, bool) {
	return d.Informers.Shards.Get(clusters.Key{Cluster: cluster, Name: d.Shard})
}

// Authority returns the fingerprint of the shard's authority. Each replica of a root shard makes one of its own.
func (d *Describer) Authority() string {
	if own, ok := d.own(clusters.SystemShards); ok {
		return own.Annotations[clusters.AuthorityAnnotation]
	}
	return ""
}

func electionOf(s election.Status, lease string) status.Election {
	out := status.Election{
		Mode: string(s.Mode), State: s.State, Epoch: s.Epoch, Holder: s.Holder, Leader: s.Leader, LeaderInstance: s.LeaderInstance, LeaderURL: s.LeaderURL,
		Since: s.Began, Renewed: s.Renewed, Duration: int32(s.Duration / time.Second), Trigger: string(s.Trigger), Leaderless: s.Leaderless.Seconds(), LastStepDown: s.LastStepDown,
		Unaccounted: s.Unaccounted, OtherMode: s.OtherMode, Priority: s.Priority,
		CannotLead: cmp.Or(s.CannotRead, s.CannotStand, s.Held, cannotTake(s)),
	}
	if s.Mode != "" {
		out.Lease = lease
	}
	if contact := s.Contact; contact != nil {
		out.Contact = &status.Contact{State: contact.State, Heard: contact.Heard, AllowedSilence: contact.AllowedSilence.Seconds()}
	}
	for _, f := range s.Standbys {
		out.Standbys = append(out.Standbys, status.Standby{Replica: f.Replica, Instance: f.Instance, URL: f.URL, Mode: string(f.Mode), Priority: f.Priority})
	}
	return out
}

// cannotTake says why a replica cannot take the lease. Once somebody leads, its latest attempt is an old one: perhaps
// etcd did not answer anybody then, and this replica has no reason to try again.
func cannotTake(s election.Status) string {
	if s.CannotWrite == "" || s.Leaderless == 0 {
		return ""
	}
	return "cannot take the lease: " + s.CannotWrite
}

// scopes are the words for Scope in a status.Controller.
var scopes = map[controllers.Scope]string{controllers.LeaderOnly: "leader", controllers.Electing: "electing", controllers.EveryReplica: "every-replica"}

func controllerOf(s terms.Status) status.Controller {
	h := s.Health
	out := status.Controller{
		Name: s.Controller, Scope: scopes[s.Scope], State: s.State, Since: s.Since, Restarts: s.Restarts, Panics: s.Panics, Stalls: s.Stalls,
		Failed: s.Failed, Effect: s.Effect, Tolerated: s.Tolerated, HeldBy: s.HeldBy,
		Users: status.Lane{Running: s.State == supervisor.Running || s.State == supervisor.Stalled, Pending: h.Pending - h.Sweep.Pending, Returned: h.Returned - h.Sweep.Returned},
		Sweep: status.Lane{Running: h.Sweep.Running, Pending: h.Sweep.Pending, Returned: h.Sweep.Returned},
	}
	if s.LastError != nil {
		out.LastError = clip(s.LastError)
	}
	for _, k := range slices.Sorted(maps.Keys(s.Ranges)) {
		if one := s.Ranges[k]; !isWell(one) && len(out.Ranges) < status.MostUnwell {
			out.Ranges = append(out.Ranges, ofRange(k, one))
		}
	}
	return out
}

// isWell reports whether there is nothing to say of a controller of a range.
func isWell(s supervisor.Status) bool {
	return (s.State == supervisor.Running || s.State == supervisor.Stopped) && s.LastError == nil && s.HeldBy == ""
}

func ofRange(k int, s supervisor.Status) status.ControllerOfRange {
	out := status.ControllerOfRange{
		Range: k, State: s.State, Since: s.Since, Restarts: s.Restarts, Failed: s.Failed, HeldBy: s.HeldBy, Pending: s.Health.Pending,
	}
	if s.LastError != nil {
		out.LastError = clipTo(longestOfRange, s.LastError)
	}
	return out
}

// longestError is how many bytes of an error are told, and longestOfRange of each of many ranges: an answer that is too
// long is none.
const longestError, longestOfRange = 4 << 10, 256

func clip(err error) string { return clipTo(longestError, err) }

func clipTo(most int, err error) string {
	text := err.Error()
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + fmt.Sprintf("... (%d bytes)", len(text))
	}
	return text
}
