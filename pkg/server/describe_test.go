package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/catalog"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/test/etcdtest"
)

// ask returns what a replica answers an administrator.
func ask[T any](t *testing.T, r *replica, path string) (out T) {
	t.Helper()
	path, query, _ := strings.Cut(path, "?")
	req := r.admin(t).Get().AbsPath(path)
	if key, value, some := strings.Cut(query, "="); some {
		req.Param(key, value)
	}
	body, err := req.Do(t.Context()).Raw()
	if err == nil {
		err = json.Unmarshal(body, &out)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return out
}

// untilAnswered asks again and again until the answer is as wanted, and returns it.
func untilAnswered[T any](t *testing.T, r *replica, path, what string, so func(T) bool) T {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; <-time.After(50 * time.Millisecond) {
		if got := ask[T](t, r, path); so(got) {
			return got
		} else if time.Now().After(end) {
			text, _ := json.MarshalIndent(got, "", " ")
			t.Fatalf("not so: %s. %s answers %s", what, path, text)
		}
	}
}

// findReplica returns the replica of that name; nil if there is none.
func findReplica(s status.Shard, name string) *status.Replica {
	n := slices.IndexFunc(s.Replicas, func(r status.Replica) bool { return r.Name == name })
	if n < 0 {
		return nil
	}
	return &s.Replicas[n]
}

func controllerNamed(r *status.Replica, name string) (c status.Controller) {
	for _, one := range r.Controllers {
		if one.Name == name {
			return one
		}
	}
	return c
}

// startTwo starts two replicas of a shard that run a controller, and returns the leader first.
func startTwo(t *testing.T, run func(context.Context, controllers.Deps) error, change ...func(*Config)) (leader, standby *replica) {
	t.Helper()
	etcd, root := etcdtest.Start(t), t.TempDir()
	start := func() *replica {
		cfg := withController(t, config(t, root), run)
		// a leader that steps down leaves the other one time, however busy the machine is
		cfg.Election = defaultElection()
		cfg.EmbeddedEtcd, cfg.Etcd = nil, etcd
		for _, c := range change {
			c(&cfg)
		}
		r := startReplica(t, cfg)
		t.Cleanup(func() {
			if err := r.stop(t); err != nil {
				t.Errorf("Run returned %v", err)
			}
		})
		return r
	}
	leader = start()
	untilAnswered(t, leader, status.ReplicaPath, "the first leads", func(r status.Replica) bool { return r.Election.State == "leading" })
	standby = start()
	untilAnswered(t, standby, status.ReplicaPath, "the second follows it", func(r status.Replica) bool {
		return r.Election.Contact != nil && r.Election.Contact.State == "alive"
	})
	return leader, standby
}

func untilDone(ctx context.Context, _ controllers.Deps) error {
	<-ctx.Done()
	return nil
}

func TestEachReplicaTellsTheSameOfItsShard(t *testing.T) {
	leader, standby := startTwo(t, untilDone)
	names := []string{leader.server.name, standby.server.name}
	slices.Sort(names)
	for _, at := range []*replica{leader, standby} {
		// answers are given again for a moment
		shard := untilAnswered(t, at, status.ShardPath, "both answer and are ready, and the leader works", func(s status.Shard) bool {
			if len(s.Replicas) != 2 || s.Replicas[0].Fault+s.Replicas[1].Fault != "" {
				return false
			}
			for _, r := range s.Replicas { // each looks at its etcd by and by
				if len(r.NotReady) > 0 || len(r.Etcd) != 1 || !r.Etcd[0].Serves {
					return false
				}
			}
			leads, follows := findReplica(s, leader.server.name), findReplica(s, standby.server.name)
			return leads != nil && follows != nil && controllerNamed(leads, "acting").State == "running" && len(leads.Election.Standbys) > 0 &&
				follows.Election.Contact != nil && follows.Election.Contact.State == "alive"
		})
		if shard.Name != "root" || shard.Leader != leader.server.name || shard.Replicas[0].Name != names[0] || shard.Replicas[1].Name != names[1] || shard.Capacity == 0 {
			t.Errorf("asked of %s: %+v", at.server.name, shard)
		}
		leads, follows := findReplica(shard, leader.server.name), findReplica(shard, standby.server.name)
		if leads.URL != leader.url || follows.URL != standby.url {
			t.Errorf("the replicas are at %s and %s, want %s and %s", leads.URL, follows.URL, leader.url, standby.url)
		}
		for _, e := range []status.Election{leads.Election, follows.Election} {
			if e.Lease != "kube-system/regent-controllers" || e.Epoch != 1 || e.Leader != leader.server.name || e.LeaderURL != leader.url || e.Since.IsZero() || e.Leaderless != 0 {
				t.Errorf("an election is %+v", e)
			}
		}
		if e := leads.Election; e.State != "leading" || e.Contact != nil || len(e.Standbys) != 1 || e.Standbys[0].Replica != follows.Name || e.Standbys[0].URL != follows.URL {
			t.Errorf("the leader's election is %+v", e)
		}
		if e := follows.Election; e.State != "standing by" || e.Contact == nil || e.Contact.State != "alive" || e.Contact.AllowedSilence == 0 || len(e.Standbys) != 0 {
			t.Errorf("the standby's election is %+v", e)
		}
		if a, b := controllerNamed(leads, "acting"), controllerNamed(follows, "acting"); a.State != "running" || a.Scope != "leader" || b.State != "stopped" {
			t.Errorf("the leader's controller is %+v, the standby's %+v", a, b)
		}
		for _, r := range shard.Replicas {
			if r.Version == "" || r.Started.IsZero() || r.Observed.Before(r.Started) || len(r.Etcd) != 1 || !r.Etcd[0].Serves || len(r.NotReady) > 0 {
				t.Errorf("replica %s is %+v", r.Name, r)
			}
			var certificates []string
			for _, c := range r.Certificates {
				if certificates = append(certificates, c.Name); c.Expires.Before(time.Now()) {
					t.Errorf("certificate %s expires %v", c.Name, c.Expires)
				}
			}
			if fmt.Sprint(certificates) != "[authority admin serving]" {
				t.Errorf("certificates %q", certificates)
			}
		}
	}
	whole := ask[status.Installation](t, standby, status.InstallationPath)
	if whole.Root != "root" || whole.By != standby.server.name || len(whole.Shards) != 1 || len(whole.Shards[0].Replicas) != 2 || whole.Observed.IsZero() {
		t.Errorf("a lone shard is an installation: %+v", whole)
	}
}

// A replica that ends in order says so, and is listed no more. One that is killed has a fault: test/e2e.
func TestAReplicaThatEndsInOrderIsListedNoMore(t *testing.T) {
	for name, leads := range map[string]bool{"leader": true, "standby": false} {
		t.Run(name, func(t *testing.T) {
			// also for a busy machine
			leaves, stays := startTwo(t, untilDone, func(cfg *Config) { cfg.farewell = 20 * time.Second })
			if !leads {
				leaves, stays = stays, leaves
			}
			for _, at := range []*replica{leaves, stays} {
				untilAnswered(t, at, status.ShardPath, "both are known", func(s status.Shard) bool { return len(s.Replicas) == 2 })
			}
			if err := leaves.stop(t); err != nil {
				t.Fatal(err)
			}
			// answers are given again for a moment
			shard := untilAnswered(t, stays, status.ShardPath, "the one that stays leads alone", func(s status.Shard) bool {
				return s.Leader == stays.server.name && len(s.Replicas) == 1
			})
			if got := findReplica(shard, stays.server.name).Left; !slices.Equal(got, []string{leaves.server.instance}) {
				t.Errorf("these have left: %q, want %s", got, leaves.server.instance)
			}
			if shard.Replicas[0].Fault != "" {
				t.Errorf("the replicas are %+v", shard.Replicas)
			}
		})
	}
}

// Only a replica of the same shard may say that one leaves.
func TestAFarewellIsARequestWithAName(t *testing.T) {
	r := startReplica(t, config(t, t.TempDir()))
	defer func() { _ = r.stop(t) }() // before its directory is removed
	for _, c := range []struct {
		verb, body string
		want       int
	}{
		{http.MethodPost, `{"replica":"x"}`, http.StatusOK},
		{http.MethodPost, `{"replica":""}`, http.StatusBadRequest},
		{http.MethodPost, `{"replica":"` + strings.Repeat("x", 256+1) + `"}`, http.StatusBadRequest},
		{http.MethodPost, `x`, http.StatusBadRequest},
		{http.MethodPost, ``, http.StatusBadRequest},
		{http.MethodGet, ``, http.StatusMethodNotAllowed},
	} {
		var code int
		r.admin(t).Verb(c.verb).AbsPath(status.FarewellPath).Body([]byte(c.body)).Do(t.Context()).StatusCode(&code)
		if code != c.want {
			t.Errorf("%s %.20s: %d, want %d", c.verb, c.body, code, c.want)
		}
	}
}

func TestAControllerThatFailsOrDoesNotStopIsTold(t *testing.T) {
	wake := make(chan struct{})
	fails := make(chan struct{})
	cfg := withController(t, config(t, t.TempDir()), func(ctx context.Context, deps controllers.Deps) error {
		if deps.Token.Epoch > 1 {
			return untilDone(ctx, deps)
		}
		select {
		case <-fails:
			return errors.New("no luck")
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	registry, err := cfg.Registry.With(controllers.Descriptor{Name: "stubborn", New: func(context.Context, controllers.Deps) (controllers.Controller, error) {
		return acting(func(ctx context.Context) error { <-ctx.Done(); <-wake; return nil }), nil
	}}, controllers.Descriptor{Name: "everywhere", Scope: controllers.EveryReplica, New: func(context.Context, controllers.Deps) (controllers.Controller, error) {
		return acting(func(ctx context.Context) error { <-ctx.Done(); return nil }), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Registry, cfg.Election.DrainTimeout = registry, 300*time.Millisecond
	r := startReplica(t, cfg)
	defer func() { _ = r.stop(t) }()
	defer close(wake)
	untilAnswered(t, r, status.ReplicaPath, "it leads, and all controllers run", func(r status.Replica) bool {
		return controllerNamed(&r, "stubborn").State == "running" && controllerNamed(&r, "everywhere").State == "running"
	})
	got := ask[status.Replica](t, r, status.ReplicaPath+"?stacks=stubborn")
	if !strings.Contains(controllerNamed(&got, "stubborn").Stacks, "TestAControllerThatFailsOrDoesNotStop") || controllerNamed(&got, "acting").Stacks != "" {
		t.Errorf("the stacks are %+v", got.Controllers)
	}
	if c := controllerNamed(&got, "everywhere"); c.Scope != "every-replica" || c.State != "running" {
		t.Errorf("a controller of every replica is %+v", c)
	}
	close(fails)
	got = untilAnswered(t, r, status.ReplicaPath, "it is quarantined", func(r status.Replica) bool {
		stubborn := controllerNamed(&r, "stubborn")
		return r.Election.State == "quarantined" && stubborn.State == "late" && stubborn.LastError != ""
	})
	if c := controllerNamed(&got, "acting"); c.State != "stopped" || c.LastError != "no luck" || c.Effect != "step down" || c.Failed.IsZero() {
		t.Errorf("the one that has failed is %+v", c)
	}
}

// In mode coordinated there is a second Lease, of who elects the leader.
func TestWhoElectsTheLeaderIsTold(t *testing.T) {
	t.Parallel() // most of it is waiting
	all, err := catalog.Registry()
	if err != nil {
		t.Fatal(err)
	}
	leader, standby := startTwo(t, untilDone, func(cfg *Config) {
		cfg.Election.Mode = election.Coordinated{BinaryVersion: BuildVersion(), EmulationVersion: BuildVersion()}
		if cfg.Registry, err = cfg.Registry.With(all.Scoped(controllers.Electing)...); err != nil {
			t.Fatal(err)
		}
	})
	for _, at := range []*replica{leader, standby} {
		shard := untilAnswered(t, at, status.ShardPath, "one of two replicas elects, and the other one hears it", func(s status.Shard) bool {
			elect, follow := 0, 0
			for _, r := range s.Replicas {
				// it is asked before the one that hears it
				if r.Electing != nil && r.Electing.State == "leading" && len(r.Electing.Standbys) > 0 {
					elect++
				} else if r.Electing != nil && r.Electing.Contact != nil && r.Electing.Contact.State == "alive" {
					follow++
				}
			}
			return elect == 1 && follow == 1 && s.Leader == leader.server.name
		})
		for _, r := range shard.Replicas {
			elects := r.Electing.State == "leading"
			if r.Election.Mode != "coordinated" || r.Electing.Mode != "lease" || r.Electing.Lease != "kube-system/"+ElectionsLease || r.Electing.LeaderURL == "" || elects != (r.Electing.Leader == r.Name) {
				t.Errorf("the elections of %s are %+v and %+v", r.Name, r.Election, r.Electing)
			}
			for _, c := range r.Controllers {
				if c.Scope == "electing" && (c.State == "running") != elects {
					t.Errorf("controller %s of %s: %+v", c.Name, r.Name, c)
				}
			}
			if elects && (len(r.Electing.Standbys) != 1 || r.Electing.Standbys[0].URL == "") {
				t.Errorf("who elects is followed by %+v", r.Electing.Standbys)
			}
		}
	}
}

func TestHowAReplicaIsDoingIsForMastersAndWhomTheyAllow(t *testing.T) {
	cfg := withController(t, config(t, t.TempDir()), untilDone)
	r := startReplica(t, cfg)
	defer func() { _ = r.stop(t) }()
	for _, path := range []string{status.ReplicaPath, status.ShardPath, status.InstallationPath, status.TermsPath, status.TopPath} {
		if got := r.get(t, path); got != http.StatusUnauthorized {
			t.Errorf("%s to a stranger: %d", path, got)
		}
		for _, verb := range []string{http.MethodHead, http.MethodPost, http.MethodDelete} {
			code := 0
			r.admin(t).Verb(verb).AbsPath(path).Do(t.Context()).StatusCode(&code)
			if code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", verb, path, code)
			}
		}
	}
	code := 0
	r.admin(t).Get().AbsPath(status.ReplicaPath).Param("stacks", "nobody").Do(t.Context()).StatusCode(&code)
	if code != http.StatusNotFound {
		t.Errorf("the stacks of a controller that does not exist: %d", code)
	}
	r.admin(t).Get().AbsPath("/clusters/root" + status.ReplicaPath).Do(t.Context()).StatusCode(&code)
	if code != http.StatusOK {
		t.Errorf("below a cluster, as of all endpoints of the process: %d", code)
	}
}
