package election

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// die does what the kernel does when a process is killed: the lock goes, and the file stays.
func (l *processLock) die() { _ = l.file.Close() }

func entered(t *testing.T, directory string) *processLock {
	t.Helper()
	r := newProcessLock(directory)
	if err := r.enter(); err != nil {
		t.Fatal(err)
	}
	if r.bootID == "" {
		r.bootID = "boot" // not on Linux
	}
	t.Cleanup(func() { r.leave(false) })
	return r
}

// presenceFor returns what a replica publishes while it is alive.
func presenceFor(r *processLock) lease.Presence {
	mark, _ := r.mark()
	return lease.Presence{Holder: "h", Process: r.process, BootID: r.bootID, File: mark}
}

func TestOnlyADeadProcessOfThisBootIsKnownToBeDead(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "replicas")
	us, living, dead, left := entered(t, directory), entered(t, directory), entered(t, directory), entered(t, directory)
	presences := map[*processLock]lease.Presence{living: presenceFor(living), dead: presenceFor(dead), left: presenceFor(left)}
	dead.die()
	left.leave(false)
	elsewhere := presences[dead]
	elsewhere.BootID = "another"
	escaping := presences[dead]
	escaping.Process = "../replicas/" + dead.process
	for name, test := range map[string]struct {
		presence lease.Presence
		want     bool
	}{
		"living":          {presences[living], false},
		"dead":            {presences[dead], true},
		"left in order":   {presences[left], false},
		"ourselves":       {presenceFor(us), false},
		"another boot":    {elsewhere, false},
		"no presence":     {lease.Presence{}, false},
		"not a file name": {escaping, false},
	} {
		if got := us.knowsDead(test.presence); got != test.want {
			t.Errorf("%s: known to be dead: %v, want %v", name, got, test.want)
		}
	}
}

// Somebody makes a second replica's root directory by copying all of the first one's.
func TestACopyOfTheDirectoryProvesNobodysDeath(t *testing.T) {
	directory, other := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	living := entered(t, directory)
	if err := os.CopyFS(other, os.DirFS(directory)); err != nil {
		t.Fatal(err)
	}
	us := entered(t, other)
	if _, err := os.Stat(us.path(living.process)); err != nil {
		t.Fatalf("the copy has no file of the living process: %v", err)
	}
	if us.knowsDead(presenceFor(living)) {
		t.Error("a living process is known to be dead")
	}
}

func TestAProcessWithoutALockedFilePublishesNone(t *testing.T) {
	if mark, held := newProcessLock(t.TempDir()).mark(); held {
		t.Errorf("it publishes %s", mark)
	}
}

func TestStartersRemoveDeadProcessesFilesButTheHolders(t *testing.T) {
	directory := t.TempDir()
	us, living, dead, holder := entered(t, directory), entered(t, directory), entered(t, directory), entered(t, directory)
	dead.die()
	holder.die()
	foreign := filepath.Join(directory, "README")
	if err := os.WriteFile(foreign, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	us.remove(us.dead(), presenceFor(holder))
	for path, want := range map[string]bool{
		us.path(us.process): true, living.path(living.process): true, holder.path(holder.process): true,
		dead.path(dead.process): false, foreign: true,
	} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", filepath.Base(path), err == nil, want)
		}
	}
}

// A standby whose view of the Lease is late takes an earlier holder for the present one. The file of the present
// holder, which is dead, too, has to stay: it shows to others that this holder is dead.
func TestWhoSweepsSparesTheHolderNotWhoWasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		directory, store := t.TempDir(), electiontest.NewStore("controllers")
		before, holder, neither := entered(t, directory), entered(t, directory), entered(t, directory)
		cfg := DefaultConfig()
		cfg.Namespace = "kube-system"
		cfg.Name, cfg.Client, cfg.ReplicasDirectory = "controllers", store.Client(), directory
		e, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		take := func(r *processLock, name string) {
			r.bootID = e.processLock.bootID
			p := presenceFor(r)
			p.Holder = name
			store.Take(name, time.Hour)
			store.Edit(func(l *coordinationv1.Lease) { p.WriteTo(l) })
		}
		take(before, "before")
		e.view = lease.NewView(logr.Discard(), e.identities.ours)
		e.view.See(store.Lease())
		take(holder, "holder")
		seen, _ := e.view.Latest()
		for _, r := range []*processLock{before, holder, neither} {
			r.die()
		}
		e.sweep(t.Context(), seen.Presence())
		for r, want := range map[*processLock]bool{neither: false, holder: true} {
			if _, err := os.Stat(r.path(r.process)); (err == nil) != want {
				t.Errorf("a file is there: %t, want %t", err == nil, want)
			}
		}
		if !e.processLock.knowsDead(lease.PresenceOf(store.Lease())) {
			t.Error("nobody can tell any more that the holder is dead")
		}
	})
}

func TestALoneReplicaThatRestartsDoesNotWaitForItsDeadPredecessor(t *testing.T) {
	for _, mode := range []Mode{Renewed{}, ForLife{}} {
		t.Run(string(mode.Name()), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { restartsAfterDeath(t, mode) })
		})
	}
}

func restartsAfterDeath(t *testing.T, mode Mode) {
	directory := t.TempDir()
	predecessor := entered(t, directory)
	store := electiontest.NewStore("controllers")
	cfg := DefaultConfig()
	cfg.Namespace = "kube-system"
	cfg.Name, cfg.Mode, cfg.Client, cfg.ReplicasDirectory = "controllers", mode, store.Client(), directory
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	predecessor.bootID = e.processLock.bootID
	held := presenceFor(predecessor)
	held.Holder, held.ElectionMode = "predecessor", mode.Name()
	store.Take("predecessor", time.Hour)
	store.Edit(func(l *coordinationv1.Lease) { held.WriteTo(l) })

	led := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan error)
	go func() {
		returned <- e.Run(ctx, func(ctx context.Context, _ Term) error { close(led); <-ctx.Done(); return nil })
	}()
	time.Sleep(time.Minute)
	select {
	case <-led:
		t.Fatal("took the lease of a living process")
	default:
	}
	predecessor.die()
	died := time.Now()
	<-led
	if took := time.Since(died); took > cfg.RetryPeriod {
		t.Errorf("waited %v for a dead process's lease", took)
	}
	cancel()
	<-returned
	if _, err := os.Stat(e.processLock.path(e.processLock.process)); err == nil {
		t.Error("an orderly exit left its file")
	}
}

// A process without election never writes the Lease: the dead holder stays on it, and ends no term.
func TestWithoutElectionADeadHolderIsNobody(t *testing.T) {
	for _, mode := range []Mode{Renewed{}, ForLife{}} {
		t.Run(string(mode.Name()), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { ledOverADeadHolder(t, mode) })
		})
	}
}

func ledOverADeadHolder(t *testing.T, mode Mode) {
	directory, store := t.TempDir(), electiontest.NewStore("controllers")
	predecessor := entered(t, directory)
	cfg := DefaultConfig()
	cfg.Namespace = "kube-system"
	cfg.Name, cfg.Client, cfg.ReplicasDirectory = "controllers", store.Client(), directory
	e, err := NewUnelected(cfg)
	if err != nil {
		t.Fatal(err)
	}
	predecessor.bootID = e.processLock.bootID
	held := presenceFor(predecessor)
	held.Holder, held.ElectionMode = "predecessor", mode.Name()
	store.Take("predecessor", time.Hour)
	store.Edit(func(l *coordinationv1.Lease) { held.WriteTo(l) })
	predecessor.die()

	ctx, cancel := context.WithCancel(t.Context())
	var terms, running atomic.Int64
	returned := make(chan error)
	go func() {
		returned <- e.Run(ctx, func(ctx context.Context, _ Term) error {
			terms.Add(1)
			running.Add(1)
			defer running.Add(-1)
			<-ctx.Done()
			return nil
		})
	}()
	time.Sleep(time.Minute)
	if terms.Load() != 1 || running.Load() != 1 {
		t.Errorf("%d terms have begun, and %d run, in a minute; want one that lasts", terms.Load(), running.Load())
	}
	store.Take("a candidate", time.Hour)
	time.Sleep(time.Second)
	if running.Load() != 0 {
		t.Error("the term goes on although somebody else holds the lease")
	}
	cancel()
	<-returned
}

// The electing controller would wait for the answer of a dead standby.
func TestWhoEntersTakesAwayTheCandidatesOfDeadProcesses(t *testing.T) {
	// of whatever mode it is itself
	for _, mode := range []Mode{Renewed{}, Coordinated{BinaryVersion: "1.0.0", EmulationVersion: "1.0.0"}, ForLife{}} {
		t.Run(string(mode.Name()), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { sweepsCandidates(t, mode) })
		})
	}
}

func sweepsCandidates(t *testing.T, mode Mode) {
	directory, store := t.TempDir(), electiontest.NewStore("controllers")
	dead, living := entered(t, directory), entered(t, directory)
	cfg := DefaultConfig()
	cfg.Namespace = "kube-system"
	cfg.Name, cfg.Mode, cfg.ReplicasDirectory = "controllers", mode, directory
	client := store.Client()
	cfg.Client, cfg.Candidates = client, client.Candidates()
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]*processLock{"dead": dead, "living": living, "of another election": dead, "stock": nil} {
		candidate := &coordinationv1beta1.LeaseCandidate{ObjectMeta: metav1.ObjectMeta{Name: name}}
		candidate.Spec.LeaseName, candidate.Spec.EmulationVersion, candidate.Spec.BinaryVersion = "controllers", "2.0.0", "2.0.0"
		if name == "of another election" {
			candidate.Spec.LeaseName = "others"
		}
		if r != nil {
			r.bootID = e.processLock.bootID
			presenceFor(r).WriteTo(candidate)
		}
		if _, err := cfg.Candidates.Create(t.Context(), candidate, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	dead.die()
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan error)
	go func() {
		returned <- e.Run(ctx, func(ctx context.Context, _ Term) error { <-ctx.Done(); return nil })
	}()
	time.Sleep(time.Minute)
	names := store.Candidates().Names()
	cancel()
	<-returned
	for name, want := range map[string]bool{"dead": false, "living": true, "of another election": true, "stock": true} {
		if slices.Contains(names, name) != want {
			t.Errorf("candidates %q: %s should be there: %t", names, name, want)
		}
	}
}

// The release did not arrive, so the Lease still names the process. Others know that it is gone because its file can be
// locked.
func TestAProcessThatCouldNotReleaseLeavesTheProofOfItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		directory, store := t.TempDir(), electiontest.NewStore("controllers")
		begin := func() (*electiontest.Client, <-chan struct{}, func()) {
			client, led := store.Client(), make(chan struct{})
			cfg := DefaultConfig()
			cfg.Namespace = "kube-system"
			cfg.Name, cfg.Mode, cfg.Client, cfg.ReplicasDirectory = "controllers", ForLife{}, client, directory
			e, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if e.processLock.bootID == "" {
				e.processLock.bootID = "boot" // not on Linux
			}
			ctx, cancel := context.WithCancel(t.Context())
			returned := make(chan error)
			go func() {
				returned <- e.Run(ctx, func(ctx context.Context, _ Term) error { close(led); <-ctx.Done(); return nil })
			}()
			return client, led, func() { cancel(); <-returned }
		}
		client, led, end := begin()
		<-led
		client.Always(electiontest.Fault{Hang: true})
		end()
		if store.Holder() == "" {
			t.Fatal("the test's fault did not keep it from releasing")
		}
		restarted := time.Now()
		_, led, end = begin()
		<-led
		if took := time.Since(restarted); took > time.Second {
			t.Errorf("waited %v for a process that has ended", took)
		}
		end()
	})
}
