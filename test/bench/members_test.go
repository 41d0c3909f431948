package bench

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/test/e2e/harness"
	"github.com/regent-project/regent/test/e2e/history"
)

const (
	// memberDown is how long a killed member of etcd stays away. A leader that does not find another one loses most
	// of its renew deadline of 10 s by that.
	memberDown = 8 * time.Second
	// aheadOf and afterwards are for how long users ask before and after something happens: requests that hang are
	// told of after it.
	aheadOf, afterwards = 2 * time.Second, 3 * time.Second
	// behind is for how long a standby is paused, so that it misses some hundred changes.
	behind = 5 * time.Second
)

// BenchmarkMembers is what becomes of a shard of many workspaces when something happens to its etcd of three members: a
// member is killed, all of the history is compacted while a standby is behind, a member is defragmented, the space is
// used up. Users read, write, create and delete workspaces meanwhile, and the leader writes all the time. It prints a
// table. etcd's history tells whether a write was stale.
func BenchmarkMembers(b *testing.B) {
	if _, err := build(); err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	s := startMembersAtScale(b)
	for n := range *memberKills {
		s.happens(b, "a member is killed, and back after "+memberDown.String(), func() {
			victim := s.etcd.Members[n%len(s.etcd.Members)]
			victim.Kill()
			time.Sleep(memberDown)
			victim.Start(b)
			s.etcd.WaitHealthy(b)
		})
	}
	s.happens(b, "compaction, the standby was behind", func() { s.compactBehind(b) })
	for _, member := range s.etcd.Members {
		s.happens(b, "a member is defragmented", func() { s.defragment(b, member) })
	}
	s.happens(b, "NOSPACE, until it is over", func() { s.fillUp(b) })
	judged := s.judge(b)
	b.ReportMetric(0, "ns/op")
	fmt.Printf("\n%s\n%s\n%s.\n%s\n", s.table(), judged, versions(b), closing(began))
}

// membersAtScale is a shard of two replicas on an etcd of three members, and its users.
type membersAtScale struct {
	*machine
	client   *clientv3.Client
	recorder *history.Recorder
	names    []string
	rows     map[string]*befallen
}

// befallen is what followed from one kind of event.
type befallen struct {
	n, terms, requests, failed int
	longest                    time.Duration
	took                       []time.Duration
}

func startMembersAtScale(b *testing.B) *membersAtScale {
	b.Helper()
	s := &membersAtScale{machine: &machine{etcd: harness.StartEtcdOf(b, harness.EtcdConfig{Members: 3})}, rows: map[string]*befallen{}}
	s.client = s.etcd.Client(b)
	s.recorder = history.Record(b, s.client, "/registry")
	shard := harness.NewShard(s.etcd.URL)
	shard.Binary, shard.Timings, shard.Args = harness.Binary("faulty"), harness.Default, []string{"--writer=fenced"}
	s.leader = shard.Start(b, "a")
	s.leader.WaitRoot()
	s.standby = shard.Start(b, "b")
	s.awaitStandby(b)
	s.fill(b, &scaled{size: *memberSize}, 0, *memberSize)
	return s
}

// happens does something to etcd while users ask, and takes note of what followed.
func (s *membersAtScale) happens(b *testing.B, name string, do func()) {
	b.Helper()
	row := s.rows[name]
	if row == nil {
		row = &befallen{}
		s.rows[name], s.names = row, append(s.names, name)
	}
	before := len(s.ended())
	var through []*asking
	for _, replica := range []*harness.Replica{s.leader, s.standby} {
		users := ask(b, replica, *memberSize)
		defer users.end()
		through = append(through, users)
	}
	ctx, stop := context.WithCancel(b.Context())
	var creating sync.WaitGroup
	defer creating.Wait()
	defer stop()
	creating.Go(func() { s.churn(ctx, fmt.Sprintf("churn-%d-%d", len(s.names), row.n)) })
	time.Sleep(aheadOf)
	began := time.Now()
	do()
	took := time.Since(began)
	time.Sleep(afterwards)
	stop()
	creating.Wait()
	var failed int
	for _, users := range through {
		users.end()
		in := users.within(began, time.Now())
		row.requests, failed = row.requests+in.n(), failed+in.failed
		for _, one := range in.took {
			row.longest = max(row.longest, one)
		}
	}
	ended := s.ended()[before:]
	row.n, row.terms, row.failed, row.took = row.n+1, row.terms+len(ended), row.failed+failed, append(row.took, took)
	progress("%s: %s; %d terms ended %v; %d requests failed", name, show(took), len(ended), ended, failed)
	harness.EventuallyIn(b, 5*time.Minute, "one leads and one follows", func() bool {
		return s.leader.Leads() && s.standby.Follows() || s.standby.Leads() && s.leader.Follows()
	})
	if s.standby.Leads() {
		s.leader, s.standby = s.standby, s.leader
	}
}

// churn creates and deletes workspaces, and goes on when that fails.
func (s *membersAtScale) churn(ctx context.Context, prefix string) {
	client := s.leader.Dynamic("root").Resource(harness.Workspaces)
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("%s-%d", prefix, n)
		if _, err := client.Create(ctx, harness.NewWorkspace(name), metav1.CreateOptions{}); err == nil {
			_ = client.Delete(ctx, name, metav1.DeleteOptions{})
		}
		sleep(ctx, 100*time.Millisecond)
	}
}

// ended are the terms that have ended, and why.
func (s *membersAtScale) ended() (ended []string) {
	for _, r := range []*harness.Replica{s.leader, s.standby} {
		for _, term := range r.Terms() {
			if term.Reason != "" {
				ended = append(ended, r.Name()+": "+term.Reason)
			}
		}
	}
	return ended
}

// compactBehind compacts all that the standby has not seen, which is paused, and waits until it has seen what came
// after.
func (s *membersAtScale) compactBehind(b *testing.B) {
	s.standby.Signal(syscall.SIGSTOP)
	time.Sleep(behind)
	resp, err := s.client.Get(b.Context(), "/")
	if err != nil {
		b.Fatal(err)
	}
	if _, err := s.client.Compact(b.Context(), resp.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		b.Fatal(err)
	}
	name := fmt.Sprintf("compacted-%d", resp.Header.Revision)
	if err := s.leader.TryCreateWorkspace(b.Context(), name); err != nil {
		b.Fatal(err)
	}
	s.standby.Signal(syscall.SIGCONT)
	client := s.standby.Dynamic("root").Resource(harness.Workspaces)
	harness.EventuallyIn(b, 5*time.Minute, "the standby has seen what came after", func() bool {
		_, err := client.Get(b.Context(), name, metav1.GetOptions{ResourceVersion: "0"})
		return err == nil
	})
}

func (s *membersAtScale) defragment(b *testing.B, member *harness.Member) {
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	if _, err := s.client.Defragment(ctx, strings.TrimPrefix(member.URL, "http://")); err != nil {
		b.Fatal(err)
	}
}

// fillUp writes until etcd has no space, then makes space again as OPERATIONS.md says.
func (s *membersAtScale) fillUp(b *testing.B) {
	value, n := strings.Repeat("x", 1<<20), 0
	for ; ; n++ {
		if _, err := s.client.Put(b.Context(), fmt.Sprintf("/junk/%d", n), value); err != nil {
			break
		}
	}
	progress("no space after %d MiB more", n)
	time.Sleep(afterwards) // users ask meanwhile
	deleted, err := s.client.Delete(b.Context(), "/junk/", clientv3.WithPrefix())
	if err != nil {
		b.Fatal(err)
	}
	if _, err := s.client.Compact(b.Context(), deleted.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		b.Fatal(err)
	}
	for _, member := range s.etcd.Members {
		s.defragment(b, member)
	}
	if _, err := s.client.AlarmDisarm(b.Context(), &clientv3.AlarmMember{}); err != nil {
		b.Fatal(err)
	}
	name := fmt.Sprintf("space-%d", deleted.Header.Revision)
	harness.EventuallyIn(b, 5*time.Minute, "a workspace can be created", func() bool { return s.leader.TryCreateWorkspace(b.Context(), name) == nil })
}

// judge ends the recording.
func (s *membersAtScale) judge(b *testing.B) string {
	b.Helper()
	events := s.recorder.Finish(b)
	spans := history.Terms(events, "system:admin/kube-system/"+harness.LeaseName)
	stale, changes := history.Stale(events, spans), 0
	for _, span := range spans {
		changes += history.CountBy(events, span.Term)
	}
	if len(stale) > 0 {
		b.Errorf("stale writes: %q", stale)
	}
	return fmt.Sprintf("%d workspaces; etcd's history has %d changes by %d terms, %d of them stale.", *memberSize, changes, len(spans), len(stale))
}

func (s *membersAtScale) table() string {
	table := "| what happens | n | it takes | terms that end | users' requests | failed | the slowest |\n|---|---|---|---|---|---|---|\n"
	for _, name := range s.names {
		r := s.rows[name]
		table += fmt.Sprintf("| %s | %d | %s | %d | %d | %d | %s |\n", name, r.n, show(median(r.took)), r.terms, r.requests, r.failed, show(r.longest))
	}
	return table
}
