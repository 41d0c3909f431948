package server

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/util/cert"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
	"github.com/regent-project/regent/pkg/server/build"
	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/pkg/server/survey"
	"github.com/regent-project/regent/pkg/server/terms"
)

// describer says how this replica is doing. It asks nobody, so that the answer is there when etcd is not.
type describer struct {
	*run
	store     *store
	caches    *caches
	elections *elections
	terms     *terms.Runner
	started   time.Time
}

func (r *run) newSurvey(d *describer) *survey.Survey {
	cfg := survey.Config{
		Name: r.cfg.Shard, Root: r.cfg.rootShard(), Replica: d.replica, Outline: d.outline, Shard: d.shard, Terms: d.termsSoFar,
		Keys: r.keys.keys, Authority: d.authority, Others: func() []string { return nil }, Diagnose: status.Diagnose,
		Changed: r.known, Leaves: func() bool { return r.fault() == nil }, Farewell: r.cfg.farewell,
	}
	if d.caches.others != nil {
		cfg.Others = func() []string { return slices.Collect(maps.Keys(d.caches.others.Heard())) }
		cfg.Ask = d.caches.others.Ask
	}
	return survey.New(cfg)
}

// outline returns the name of this replica, its elections, and the time.
func (d *describer) outline() status.Replica {
	e := d.elections
	out := status.Replica{Shard: d.cfg.Shard, Name: d.name, URL: d.replicaURL(), Observed: time.Now(), Election: electionOf(e.leader.Status(), d.cfg.Election.Namespace, d.cfg.Election.Name)}
	if e.electing != nil {
		electing := electionOf(e.electing.Status(), d.cfg.Election.Namespace, ElectionsLease)
		out.Electing = &electing
	}
	return out
}

// replica returns how this replica is doing.
func (d *describer) replica(ctx context.Context) status.Replica {
	out := d.outline()
	out.Version, out.Started = build.Info().GitVersion, d.started
	out.NotReady, out.Certificates, out.Fronts = d.notReady(ctx), d.certificates(), d.members.list()
	for _, s := range d.terms.Status() {
		out.Controllers = append(out.Controllers, controllerOf(s))
	}
	members := d.store.Members()
	for _, m := range members {
		out.Etcd = append(out.Etcd, status.Member{Endpoint: m.Endpoint, Serves: m.Serves && (len(members) > 1 || d.store.etcd.answers.Load())})
	}
	if d.caches.others != nil {
		heard := d.caches.others.Heard()
		for _, name := range slices.Sorted(maps.Keys(heard)) {
			out.Peers = append(out.Peers, status.Peer{Shard: name, Heard: heard[name]})
		}
	}
	return out
}

// checkPatience is how long the checks may take together.
const checkPatience = 300 * time.Millisecond

// notReady returns which checks of /readyz fail. Of etcd it says what the process has last seen.
func (d *describer) notReady(ctx context.Context) []status.Check {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	checks := []healthz.HealthChecker{
		healthz.NamedCheck("etcd", func(*http.Request) error { return d.store.etcd.latest() }),
		d.store.space, d.store.shard, informersCheck(d.caches.informers), historyCheck(d.store.Client),
		healthz.NamedCheck("supervisor", func(*http.Request) error { return d.terms.Ping(ctx) }),
		healthz.NamedCheck("shutdown", func(*http.Request) error { return context.Cause(d.ctx) }),
	}
	if d.store.keys != nil {
		checks = append(checks, d.store.keys.Plugins())
	}
	req := (&http.Request{}).WithContext(ctx)
	var out []status.Check
	for _, check := range checks {
		if err := check.Check(req); err != nil {
			out = append(out, status.Check{Name: check.Name(), Error: clipped(err)})
		}
	}
	return out
}

// certificates returns when those expire that this replica shows or trusts.
func (d *describer) certificates() []status.Certificate {
	held := d.keys.held.Load()
	out := []status.Certificate{{Name: "authority", Expires: held.bundle.CA().NotAfter}}
	add := func(name string, certPEM []byte) {
		if certs, err := cert.ParseCertsPEM(certPEM); err == nil { // the admin's is not on all shards
			out = append(out, status.Certificate{Name: name, Expires: earliest(certs)})
		}
	}
	add("admin", held.bundle.AdminCertPEM)
	if d.generic.SecureServing.Cert != nil {
		certPEM, _ := d.generic.SecureServing.Cert.CurrentCertKeyContent()
		add("serving", certPEM)
	}
	if held.authority != nil && d.cfg.Membership != nil {
		out = append(out, status.Certificate{Name: "membership", Expires: held.authority.Expires()})
	}
	if d.furtherCA != nil {
		add("client-ca-file", d.furtherCA.CurrentCABundleContent())
	}
	return out
}

// earliest returns when the first of some certificates expires.
func earliest(certs []*x509.Certificate) time.Time {
	return slices.MinFunc(certs, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter
}

// shard returns what this replica knows of its shard, as `regent shard list` does.
func (d *describer) shard() status.Shard {
	out := status.Shard{Name: d.cfg.Shard, Clusters: d.caches.informers.LogicalClusters.Len(), Capacity: int(cmp.Or(d.cfg.Capacity, clusters.DefaultCapacity))}
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
	return out
}

// own returns the Shard object of this shard.
func (d *describer) own(cluster logicalcluster.Name) (*corev1alpha1.Shard, bool) {
	return d.caches.informers.Shards.Get(clusters.Key{Cluster: cluster, Name: d.cfg.Shard})
}

// authority returns the fingerprint of the shard's authority. Each replica of a root shard makes one of its own.
func (d *describer) authority() string {
	if own, ok := d.own(clusters.SystemShards); ok {
		return own.Annotations[clusters.AuthorityAnnotation]
	}
	return ""
}

func electionOf(s election.Status, namespace, name string) status.Election {
	out := status.Election{
		Mode: string(s.Mode), State: s.State, Epoch: s.Epoch, Holder: s.Holder, Leader: s.Leader, LeaderURL: s.LeaderURL,
		Since: s.Began, Renewed: s.Renewed, Duration: int32(s.Duration / time.Second), Trigger: string(s.Trigger), Leaderless: s.Leaderless.Seconds(), LastStepDown: s.LastStepDown,
		Unaccounted: s.Unaccounted, OtherMode: s.OtherMode, Priority: s.Priority,
		CannotLead: cmp.Or(s.CannotRead, s.CannotStand, s.Held, cannotTake(s)),
	}
	if s.Mode != "" {
		out.Lease = namespace + "/" + name
	}
	if c := s.Contact; c != nil {
		out.Contact = &status.Contact{State: c.State, Heard: c.Heard, AllowedSilence: c.AllowedSilence.Seconds()}
	}
	for _, f := range s.Standbys {
		out.Standbys = append(out.Standbys, status.Standby{Replica: f.Replica, URL: f.URL, Mode: string(f.Mode), Priority: f.Priority})
	}
	return out
}

// cannotTake says why a replica cannot take the lease. Once somebody leads, its latest attempt is an old one: perhaps etcd
// did not answer anybody then, and this replica has no reason to try again.
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
		Failed: s.Failed, Effect: s.Effect, Tolerated: s.Tolerated,
		Users: status.Lane{Running: s.State == supervisor.Running || s.State == supervisor.Stalled, Pending: h.Pending - h.Sweep.Pending, Returned: h.Returned - h.Sweep.Returned},
		Sweep: status.Lane{Running: h.Sweep.Running, Pending: h.Sweep.Pending, Returned: h.Sweep.Returned},
	}
	if s.LastError != nil {
		out.LastError = clipped(s.LastError)
	}
	return out
}

// longestError is how many bytes of an error are told.
const longestError = 4 << 10

func clipped(err error) string {
	text := err.Error()
	if len(text) > longestError {
		text = strings.ToValidUTF8(text[:longestError], "") + fmt.Sprintf("... (%d bytes)", len(text))
	}
	return text
}
