package election_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/regent-project/regent/pkg/election"
)

// Fact 11: a Lease holds whole seconds; a duration below one is written as 0, and nobody ever leads.
func TestFaultyTimingsAreRefusedByTheNameOfTheirFlag(t *testing.T) {
	for _, test := range []struct {
		flags string
		want  string // of the error; empty: valid
	}{
		{"", ""},
		{"--leader-election-lease-duration=1s --leader-election-renew-deadline=500ms --leader-election-retry-period=100ms", ""},
		{"--leader-election-lease-duration=500ms", "lease-duration 500ms must be whole seconds"},
		{"--leader-election-lease-duration=15500ms", "lease-duration 15.5s must be whole seconds"},
		{"--leader-election-lease-duration=10s", "renew-deadline 10s must be below --leader-election-lease-duration 10s"},
		{"--leader-election-retry-period=0", "retry-period 0s must be positive"},
		{"--leader-election-retry-period=9s", "renew-deadline 10s must be above 1.2 times --leader-election-retry-period 9s"},
		{"--controller-drain-timeout=-1s", "drain-timeout -1s must not be negative"},
		{"--controller-drain-timeout=10s", "drain-timeout 10s must be below --leader-election-renew-deadline 10s"},
		{"--leader-election-renew-deadline=14s --controller-drain-timeout=13s", "leaves no time to renew every 2s"},
		{"--leader-election-namespace=", `leader-election-namespace "" is not a namespace name`},
		{"--leader-election-name=A/b", `leader-election-name "A/b" is not a Lease name`},
	} {
		t.Run(test.flags, func(t *testing.T) {
			cfg := election.DefaultConfig()
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			cfg.AddFlags(fs)
			if err := fs.Parse(strings.Fields(test.flags)); err != nil {
				t.Fatal(err)
			}
			err := cfg.Validate()
			switch {
			case test.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error is %v, want it to say %q", err, test.want)
			case err != nil && strings.Contains(err.Error(), "\n"):
				t.Errorf("one fault, several lines: %v", err)
			}
		})
	}
}

func TestTheDrainTimeoutDefaultsToHalfTheRenewDeadlineAtMost5s(t *testing.T) {
	cfg := election.DefaultConfig()
	for renew, want := range map[time.Duration]time.Duration{20 * time.Second: 5 * time.Second, 4 * time.Second: 2 * time.Second} {
		cfg.RenewDeadline = renew
		if got := cfg.EffectiveDrainTimeout(); got != want {
			t.Errorf("with a renew deadline of %v the drain timeout is %v, want %v", renew, got, want)
		}
	}
}
