package leader_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/leader"
)

// victim, in the environment, is the server of the Lease under which this process is to lead until it is killed.
const victim = "LEADER_TEST_VICTIM"

// TestVictim is the process that TestAKilledLeaderIsSucceeded kills.
func TestVictim(t *testing.T) {
	server := os.Getenv(victim)
	if server == "" {
		return // it is run by the other test only
	}
	cfg := config()
	cfg.SucceedUnfenced = os.Getenv(victim+"_ACCEPTS") == "true"
	l, err := leader.New(&rest.Config{Host: server}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Run(t.Context(), func(ctx context.Context, _ election.Term) error {
		fmt.Println("leading")
		<-ctx.Done()
		return nil
	})
}

// A process that is killed with kill -9 is succeeded at once without a fence, if both have chosen so. Otherwise its
// lease expires.
func TestAKilledLeaderIsSucceeded(t *testing.T) {
	for name, test := range map[string]struct{ holder, standby, early bool }{
		"both accept":          {true, true, true},
		"the holder does not":  {false, true, false},
		"the standby does not": {true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			process := exec.Command(os.Args[0], "-test.run=^TestVictim$")
			process.Env = append(os.Environ(), victim+"="+s.config.Host, fmt.Sprintf("%s_ACCEPTS=%v", victim, test.holder))
			out, err := process.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := process.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = process.Wait() }()
			defer func() { _ = process.Process.Kill() }()
			for lines := bufio.NewScanner(out); lines.Scan() && !strings.Contains(lines.Text(), "leading"); {
			}
			var c terms
			l := s.newLeader(t, func(cfg *leader.Config) { cfg.SucceedUnfenced = test.standby })
			if err := l.Start(t.Context(), c.lead); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it follows the leader's probe", func() bool {
				contact := l.Elector().Status().Contact
				return contact != nil && contact.State == "alive"
			})
			if err := process.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			at := time.Now()
			eventually(t, "it leads", c.leads)
			took := time.Since(at)
			t.Logf("leads %v after the kill", took)
			if early := took < 5*time.Second; early != test.early {
				t.Errorf("leads after %v, and a lease lasts 10 s", took)
			}
			if err := l.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}
