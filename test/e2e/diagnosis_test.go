package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/test/e2e/harness"
)

// patient is a shard to which one fault after the other happens, and is asked what it has. Its servers are shared by
// all faults, because to start them costs most.
type patient struct {
	*couple
	// odd is a further replica, which has what is wrong from its start: see odd_test.go.
	odd *odd
	// asked is who is asked while the fault lasts, leader and standby who led and who stood by before it.
	asked, leader, standby *harness.Replica
}

// symptom is what a fault must show.
type symptom struct {
	fault string
	// do does it, and returns how to undo it; nil: it is over by itself.
	do func(p *patient) (undo func())
	// kinds are the kinds of problems that regent status and regent doctor must name, and says what both must say
	// besides, remedies too.
	kinds []string
	says  []string
	// why is what regent status must say of the leader besides.
	why string
	// onlyDoctor: regent status cannot know it.
	onlyDoctor bool
	// term is what regent terms must say of the latest terms.
	term string
	// not are names of kinds that must not be there.
	not []string
}

// regent runs the command line with the administrator's kubeconfig against who is asked, and returns what it says on
// one line, and its exit code.
func (p *patient) regent(args ...string) (output string, code int) {
	p.Helper()
	cmd := exec.CommandContext(p.Context(), harness.Binary("regent"),
		append(args, "--kubeconfig="+filepath.Join(p.asked.Root, "admin.kubeconfig"), "--server="+p.asked.URL)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if exit := (&exec.ExitError{}); err != nil && !errors.As(err, &exit) {
		p.Fatal(err)
	}
	return strings.Join(strings.Fields(out.String()), " "), cmd.ProcessState.ExitCode()
}

// told returns the kinds of problems that the replica tells which is asked. It costs less than a command.
func (p *patient) status() (of status.Installation, kinds []string) {
	if code, body := p.asked.Get(status.InstallationPath); code != 200 || json.Unmarshal([]byte(body), &of) != nil {
		return of, nil
	}
	for _, problem := range of.Problems {
		kinds = append(kinds, problem.Kind)
	}
	return of, kinds
}

// lingers are the kinds of problems that outlast what caused them: notices, and that there were so many terms.
var lingers = []string{"flapping", "controller-restarting", "controller-failed", "versions"}

// isWell reports whether both replicas are there again, and nothing is wrong but what lingers.
func (p *patient) isWell() bool {
	of, kinds := p.status()
	if len(of.Shards) != 1 || of.Shards[0].Leader == "" {
		return false
	}
	for _, kind := range kinds {
		if !slices.Contains(lingers, kind) && (p.odd == nil || !slices.Contains(p.odd.kinds, kind)) {
			return false
		}
	}
	answering := 0
	for _, r := range of.Shards[0].Replicas {
		if r.Fault == "" {
			answering++
		}
	}
	return answering >= len(p.both)
}

// shows has a fault happen, and asks all commands what is wrong until they name it.
func (p *patient) shows(s symptom) {
	p.Helper()
	p.leader, p.standby = p.roles()
	p.asked = p.standby
	began := time.Now()
	undo := s.do(p)
	harness.Eventually(p.T, s.fault+": a replica names it", func() bool {
		_, kinds := p.status()
		return s.onlyDoctor || !slices.ContainsFunc(s.kinds, func(kind string) bool { return !slices.Contains(kinds, kind) })
	})
	named := time.Since(began)
	last := map[string]string{}
	defer func() {
		if p.Failed() {
			p.Logf("%s:\n%q", s.fault, last)
		}
	}()
	if !s.onlyDoctor {
		harness.Eventually(p.T, s.fault+": regent status names it", func() bool {
			said, code := p.regent("status")
			last["status"] = said
			return s.isIn(said) && strings.Contains(said, s.why) && (code == 0) != saysWorse(said)
		})
	}
	if len(s.kinds) > 0 {
		harness.Eventually(p.T, s.fault+": regent doctor names it", func() bool {
			said, code := p.regent("doctor", "--interval=500ms")
			last["doctor"] = said
			return code != 1 && s.isIn(said)
		})
	}
	if s.term != "" {
		harness.Eventually(p.T, s.fault+": regent terms says "+s.term, func() bool {
			said, code := p.regent("terms", "-o", "wide")
			last["terms"] = said
			return code == 0 && strings.Contains(said, s.term)
		})
	}
	said := time.Since(began)
	if undo != nil {
		undo()
	}
	harness.Eventually(p.T, s.fault+": it is whole again", p.isWell)
	p.Logf("%-55s named after %v, by all commands after %v, whole after %v", s.fault, named.Round(time.Millisecond), said.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
}

// isIn reports whether a command has said it all.
func (s symptom) isIn(said string) bool {
	for _, kind := range s.kinds {
		if !saysKind(said, kind) {
			return false
		}
	}
	for _, kind := range s.not {
		if saysKind(said, kind) {
			return false
		}
	}
	return !slices.ContainsFunc(s.says, func(text string) bool { return !strings.Contains(said, text) })
}

func saysKind(said, kind string) bool {
	return slices.ContainsFunc([]string{"critical", "warning", "notice"}, func(severity string) bool { return strings.Contains(said, severity+": "+kind) })
}

// saysWorse reports whether there are problems that are more than notices.
func saysWorse(said string) bool {
	return strings.Contains(said, "critical: ") || strings.Contains(said, "warning: ")
}

// "Must show" of the command line: whatever docs/FAILOVER.md says that a standby acts on, and whatever else keeps a
// shard from being led well, has a name in what the commands say, and a remedy. It is slow because the faults come one
// after the other, each to replicas that are whole again.
func TestTheCommandsNameEachFaultAndItsRemedy(t *testing.T) {
	t.Parallel() // most of it is waiting
	etcd := harness.StartEtcdOf(t, harness.EtcdConfig{Members: 3})
	shard := harness.NewShard("").Renewed()
	// A stall lasts three deadlines, and each command asks anew for a second or more. The leader after it is whole,
	// and names nothing.
	timings := faultyTimings
	timings.Lease *= 2 // it expires long after its holder has stepped aside, on a busy machine too
	shard.Binary, shard.Timings, shard.Args, shard.Mode = harness.Program(t, "faulty"), timings, []string{"--faults=hangs,fails,stalls", "--stall-deadline=5s"}, harness.Lease
	p := &patient{couple: &couple{T: t, shard: shard, etcd: etcd, ways: map[*harness.Replica]*harness.Way{}, whole: map[*harness.Replica]string{}}}
	for _, name := range []string{"a", "b"} {
		way, whole := etcd.Way(t), filepath.Join(t.TempDir(), "whole")
		for _, fault := range []string{"hangs", "fails", "stalls"} {
			p.makeWhole(whole + "." + fault)
		}
		r := shard.Start(t, name, "--etcd-servers="+way.URL, "--mended="+whole)
		p.both, p.ways[r], p.whole[r] = append(p.both, r), way, whole
	}
	p.asked = p.both[0]
	harness.Eventually(t, "nothing is wrong", func() bool {
		_, kinds := p.status()
		said, code := p.regent("status")
		return len(kinds) == 0 && code == 0 && strings.Contains(said, "No problems.")
	})
	for _, s := range symptoms {
		p.shows(s)
	}
	for range 4 { // so many terms that nobody has asked for, one after the other, are what is wrong
		p.suffer("the lease is stolen", again, func(_ *couple, leader, _ *harness.Replica) func() {
			leader.Overwrite("a stranger", 1)
			return nil
		})
	}
	harness.Eventually(t, "flapping is told", func() bool {
		said, _ := p.regent("status")
		return saysKind(said, "flapping")
	})
	p.startOdd()
	for _, s := range oddSymptoms {
		p.shows(s)
	}
}

// listed says what the list of replicas has of one.
func (p *patient) listed(r *harness.Replica) string {
	of, _ := p.status()
	for _, shard := range of.Shards {
		for _, one := range shard.Replicas {
			if one.Name == replicaOf(r) {
				return fmt.Sprintf("%s %s", one.Election.State, one.Fault)
			}
		}
	}
	return "nothing"
}
