package options

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/server"
)

func TestEveryFlagIsHeard(t *testing.T) {
	cfg := defaultElection()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	addElectionFlags(&cfg, fs)
	given := map[string]string{
		"enable-leader-election":            "true",
		"leader-election-namespace":         "n",
		"leader-election-name":              "l",
		"leader-election-mode":              "coordinated",
		"leader-election-ranges":            "8",
		"leader-election-weight":            "2",
		"leader-election-priority":          "3",
		"leader-election-preempt":           "true",
		"leader-election-emulation-version": "1.2.3",
		"leader-election-lease-duration":    "30s",
		"leader-election-renew-deadline":    "20s",
		"leader-election-retry-period":      "3s",
		"leader-failure-detection":          "suspect",
		"controller-drain-timeout":          "4s",
	}
	want := defaultElection()
	want.Enabled, want.Namespace, want.Name, want.ModeName = true, "n", "l", "coordinated"
	want.Ranges, want.Weight = 8, 2
	want.Priority, want.Preempt, want.EmulationVersion = 3, true, "1.2.3"
	want.LeaseDuration, want.RenewDeadline, want.RetryPeriod, want.DrainTimeout = 30*time.Second, 20*time.Second, 3*time.Second, 4*time.Second
	want.Detection = election.DetectSuspect
	fs.VisitAll(func(f *pflag.Flag) {
		if given[f.Name] == "" {
			t.Errorf("--%s is not tried here", f.Name)
		}
	})
	for name, value := range given {
		if err := fs.Set(name, value); err != nil {
			t.Errorf("--%s: %v", name, err)
		}
	}
	if cfg.Enabled != want.Enabled || cfg.Namespace != want.Namespace || cfg.Name != want.Name || cfg.ModeName != want.ModeName ||
		cfg.Ranges != want.Ranges || cfg.Weight != want.Weight || cfg.Priority != want.Priority || cfg.Preempt != want.Preempt || cfg.EmulationVersion != want.EmulationVersion ||
		cfg.LeaseDuration != want.LeaseDuration || cfg.RenewDeadline != want.RenewDeadline || cfg.RetryPeriod != want.RetryPeriod ||
		cfg.DrainTimeout != want.DrainTimeout || cfg.Detection != want.Detection {
		t.Errorf("heard %+v, want %+v", cfg, want)
	}
}

func TestEachModeCanBeChosenAndItsFlagSaysWhatItIs(t *testing.T) {
	for _, mode := range election.Modes {
		cfg := defaultElection()
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		addElectionFlags(&cfg, fs)
		if err := fs.Parse([]string{"--enable-leader-election", "--leader-election-mode=" + string(mode.Name())}); err != nil {
			t.Fatal(err)
		}
		if faults := cfg.faults(); len(faults) != 0 {
			t.Errorf("%s: %v: ElectionOptions.config has to fill in what the mode needs", mode.Name(), faults)
		}
		if usage := fs.Lookup("leader-election-mode").Usage; !strings.Contains(usage, " "+string(mode.Name())+": ") {
			t.Errorf("--leader-election-mode does not say what %s is: %s", mode.Name(), usage)
		}
	}
}

func TestFlagsThatContradictEachOtherAreRefused(t *testing.T) {
	for flags, want := range map[string]string{
		"--leader-election-mode=sometimes":                                                                                     `leader-election-mode "sometimes" must be one of`,
		"--leader-failure-detection=sometimes":                                                                                 `leader-failure-detection "sometimes" must be one of`,
		"--enable-leader-election --leader-election-mode=for-life":                                                             "",
		"--leader-election-mode=for-life --leader-failure-detection=suspect":                                                   "in that mode nobody is succeeded on a suspicion",
		"--leader-election-mode=for-life --leader-failure-detection=off":                                                       "nobody would notice that a leader is not heard",
		"--leader-failure-detection=off":                                                                                       "",
		"--leader-election-priority=1":                                                                                         "",
		"--leader-election-priority=1 --leader-election-mode=coordinated":                                                      "in that mode versions decide",
		"--leader-election-preempt --leader-election-mode=coordinated":                                                         "in that mode versions decide",
		"--leader-election-priority=-1 --leader-failure-detection=off":                                                         "a leader does not know its standbys",
		"--enable-leader-election --leader-election-mode=by-presence --leader-election-ranges=1024 --leader-election-weight=2": "",
		"--leader-election-ranges=8":                                                                                           "--leader-election-weight are for --leader-election-mode=by-presence, and this is mode lease",
		"--leader-election-weight=2":                                                                                           "are for --leader-election-mode=by-presence",
		"--leader-election-ranges=0":                                                                                           "--leader-election-ranges 0 must be from 1 to 1024",
		"--leader-election-weight=-1":                                                                                          "--leader-election-weight -1 must be from 1",
		"--enable-leader-election --leader-election-mode=by-presence --leader-election-priority=1":                             "give --leader-election-weight",
		"--leader-election-preempt --leader-failure-detection=off":                                                             "a leader does not know its standbys",
		"--leader-election-lease-duration=15s --leader-election-renew-deadline=14s":                                            "",
		"--leader-election-lease-duration=1s --leader-election-renew-deadline=1s":                                              "must be below --leader-election-lease-duration",
		"--leader-election-renew-deadline=2400ms --leader-election-retry-period=2s":                                            "must be above 1.2 times",
		"--leader-election-renew-deadline=2401ms --leader-election-retry-period=2s":                                            "",
		"--leader-election-lease-duration=4s --leader-election-renew-deadline=3s --controller-drain-timeout=1600ms":            "leaves no time to renew",
		"--leader-election-lease-duration=4s --leader-election-renew-deadline=3s --controller-drain-timeout=1599ms":            "",
	} {
		cfg := defaultElection()
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		addElectionFlags(&cfg, fs)
		if err := fs.Parse(strings.Fields(flags)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(cfg.faults()...); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", flags, err, want)
		}
	}
}

// Fact 11 of docs/CLIENT-GO.md: a Lease holds whole seconds; a duration below one is written as 0, and nobody ever
// leads.
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
			cfg := defaultElection()
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			addElectionFlags(&cfg, fs)
			if err := fs.Parse(strings.Fields(test.flags)); err != nil {
				t.Fatal(err)
			}
			err := errors.Join(cfg.faults()...)
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

func TestAReplicaStandsWithItsOwnVersionUnlessItIsGivenAnother(t *testing.T) {
	build := server.BuildVersion()
	for given, want := range map[string]string{"": build, "0.0.0": "0.0.0"} {
		o := defaultElection()
		o.Enabled, o.ModeName, o.EmulationVersion = true, "coordinated", given
		cfg, err := o.config()
		if err != nil {
			t.Fatal(err)
		}
		if mode := (election.Coordinated{BinaryVersion: build, EmulationVersion: want}); cfg.Mode != mode {
			t.Errorf("given %q: %+v, want %+v", given, cfg.Mode, mode)
		}
	}
}
