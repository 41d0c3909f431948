package election_test

import (
	"strings"
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/election"
)

func TestTheDrainTimeoutDefaultsToHalfTheRenewDeadlineAtMost5s(t *testing.T) {
	cfg := election.DefaultConfig()
	for renew, want := range map[time.Duration]time.Duration{20 * time.Second: 5 * time.Second, 4 * time.Second: 2 * time.Second} {
		cfg.RenewDeadline = renew
		if got := cfg.EffectiveDrainTimeout(); got != want {
			t.Errorf("with a renew deadline of %v the drain timeout is %v, want %v", renew, got, want)
		}
	}
}

func TestFaultsNameTheFields(t *testing.T) {
	for want, change := range map[string]func(*election.Config){
		`Namespace "" is not a namespace name`:              func(c *election.Config) { c.Namespace = "" },
		`Name "A/b" is not a Lease name`:                    func(c *election.Config) { c.Name = "A/b" },
		`Mode "sometimes" must be one of`:                   func(c *election.Config) { c.Mode = "sometimes" },
		"LeaseDuration 500ms must be whole seconds":         func(c *election.Config) { c.LeaseDuration = time.Second / 2 },
		"RenewDeadline 15s must be below LeaseDuration 15s": func(c *election.Config) { c.RenewDeadline = c.LeaseDuration },
		"Priority and Preempt contradict Mode=coordinated":  func(c *election.Config) { c.Mode, c.Preempt = election.ModeCoordinated, true },
		"Detection=suspect contradicts Mode=for-life":       func(c *election.Config) { c.Mode, c.Detection = election.ModeForLife, election.DetectSuspect },
		"DrainTimeout 10s must be below RenewDeadline 10s":  func(c *election.Config) { c.DrainTimeout = c.RenewDeadline },
		"lower DrainTimeout or RetryPeriod":                 func(c *election.Config) { c.RenewDeadline, c.DrainTimeout = 14*time.Second, 13*time.Second },
	} {
		cfg := newConfig(nil)
		change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "--") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
