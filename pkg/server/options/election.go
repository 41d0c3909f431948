package options

import (
	"cmp"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/server"
)

// ElectionOptions say whether this replica stands for election, and how.
type ElectionOptions struct {
	// Enabled makes this replica a candidate.
	Enabled bool
	// ModeName names one of election.Modes.
	ModeName string
	// EmulationVersion is the version that this replica stands with in mode coordinated; empty: this build's.
	EmulationVersion string
	// Config is the rest. Its Mode is ignored: ModeName and EmulationVersion say it.
	election.Config
}

// defaultElection is the election of the contract.
func defaultElection() ElectionOptions {
	o := ElectionOptions{Config: election.DefaultConfig()}
	o.Namespace, o.Name = "kube-system", "regent-controllers"
	o.ModeName = string(o.Mode.Name())
	return o
}

// config returns the Config that the options describe.
func (o ElectionOptions) config() (election.Config, error) {
	mode, err := election.ModeNamed(election.ModeName(o.ModeName))
	if err != nil {
		return election.Config{}, fmt.Errorf("--leader-election-mode %w", err)
	}
	if _, ok := mode.(election.Coordinated); ok {
		build := server.BuildVersion()
		mode = election.Coordinated{BinaryVersion: build, EmulationVersion: cmp.Or(o.EmulationVersion, build)}
	}
	cfg := o.Config
	cfg.Mode = mode
	return cfg, nil
}

// faults returns all faults, by the names of the flags.
func (o ElectionOptions) faults() (errs []error) {
	cfg, err := o.config()
	if err != nil {
		errs = append(errs, err)
		cfg = o.Config // its other fields may be faulty, too
	} else {
		errs = append(errs, o.contradictions(cfg.Mode)...)
	}
	if err := cfg.ValidateAs(func(field string) string { return electionFlags[field] }); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// contradictions are other flags that do not go with the mode.
func (o ElectionOptions) contradictions(mode election.Mode) (errs []error) {
	if !o.Enabled && mode != (election.Renewed{}) {
		errs = append(errs, fmt.Errorf("--leader-election-mode=%s needs --enable-leader-election", o.ModeName))
	}
	if !mode.Electing() && o.EmulationVersion != "" {
		errs = append(errs, fmt.Errorf("--leader-election-emulation-version is for --leader-election-mode=%s", election.Coordinated{}.Name()))
	}
	if mode.Electing() && o.Name == server.ElectionsLease {
		errs = append(errs, fmt.Errorf("--leader-election-name %s is the Lease of who elects in mode %s: give another", o.Name, o.ModeName))
	}
	return errs
}

// electionFlags are the flags of an election's fields, or what people call a field that has none.
var electionFlags = map[string]string{
	"Namespace":     "--leader-election-namespace",
	"Name":          "--leader-election-name",
	"Mode":          "--leader-election-mode",
	"Priority":      "--leader-election-priority",
	"Preempt":       "--leader-election-preempt",
	"LeaseDuration": "--leader-election-lease-duration",
	"RenewDeadline": "--leader-election-renew-deadline",
	"RetryPeriod":   "--leader-election-retry-period",
	"Detection":     "--leader-failure-detection",
	"DrainTimeout":  "--controller-drain-timeout",

	"EmulationVersion": "--leader-election-emulation-version",
	"BinaryVersion":    "this build's version",
}

// addElectionFlags adds the election's flags with o's values as defaults.
func addElectionFlags(o *ElectionOptions, fs *pflag.FlagSet) {
	fs.BoolVar(&o.Enabled, "enable-leader-election", o.Enabled,
		"Run the controllers only while this replica holds the lease. Required when several replicas share an etcd: "+
			"two replicas without this flag do not detect each other, and both run the controllers.")
	fs.StringVar(&o.Namespace, "leader-election-namespace", o.Namespace, "Namespace of the Lease.")
	fs.StringVar(&o.Name, "leader-election-name", o.Name, "Name of the Lease.")
	fs.StringVar(&o.ModeName, "leader-election-mode", o.ModeName,
		"What it takes to keep the lease: lease: the leader renews it; coordinated: "+
			"so it does, and the candidate of the oldest version is elected; for-life: the leader keeps it until it gives up, is known "+
			"to be dead, or regent forget-replica says so. Replicas of another mode than the Lease's stand by. See docs/ELECTION.md.")
	fs.Int32Var(&o.Priority, "leader-election-priority", o.Priority,
		"How much this replica is preferred at a takeover: those of a lower priority leave it a head start of a quarter of the retry period.")
	fs.BoolVar(&o.Preempt, "leader-election-preempt", o.Preempt,
		"Ask a leader of a lower priority to make way, once this replica could have led for a lease duration.")
	fs.StringVar(&o.EmulationVersion, "leader-election-emulation-version", o.EmulationVersion,
		"Version that this replica stands with in mode coordinated, where the oldest leads; not newer than the build's, which it is "+
			"if empty. Give the old version to new replicas until a roll can not be undone any more.")
	fs.DurationVar(&o.LeaseDuration, "leader-election-lease-duration", o.LeaseDuration,
		"How long others wait for a renewal before they take the lease. Whole seconds, at least 1s. "+
			"The same on all replicas.")
	fs.DurationVar(&o.RenewDeadline, "leader-election-renew-deadline", o.RenewDeadline,
		"How long the leader tries to renew before its term ends. Below the lease duration.")
	fs.DurationVar(&o.RetryPeriod, "leader-election-retry-period", o.RetryPeriod, "Time between renewals.")
	fs.StringVar((*string)(&o.Detection), "leader-failure-detection", string(o.Detection),
		"On what signs a standby takes the lease before it has expired: off: on none; crash: when the leader's process is "+
			"seen to be gone; suspect: also when it has been silent for --leader-failure-detection-interval times "+
			"--leader-failure-detection-misses, which requires --fencing=enforce. See docs/FAILOVER.md.")
	fs.DurationVar(&o.DrainTimeout, "controller-drain-timeout", o.DrainTimeout,
		"How long controllers may take to stop at the end of a term. Later, the lease is left to expire and the replica "+
			"does not campaign until they have stopped. Below the renew deadline. "+
			"0: the smaller of 5s and half the renew deadline.")
}
