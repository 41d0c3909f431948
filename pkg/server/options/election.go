package options

import (
	"cmp"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/ranges"
	"github.com/regent-project/regent/pkg/server"
)

// ElectionOptions say whether this replica stands for election, and how.
type ElectionOptions struct {
	// Enabled makes this replica a candidate.
	Enabled bool
	// ModeName is the name of one of election.Modes.
	ModeName string
	// EmulationVersion is the version with which this replica stands in mode coordinated. Empty: this build's
	// version.
	EmulationVersion string
	// Config has all other options. Its Mode is not used: ModeName and EmulationVersion determine it.
	election.Config
}

// defaultElection returns the default values of the election flags.
func defaultElection() ElectionOptions {
	o := ElectionOptions{Config: election.DefaultConfig()}
	o.Namespace, o.Name = "kube-system", "regent-controllers"
	o.ModeName = string(o.Mode.Name())
	o.Ranges, o.Weight = 1, 1
	return o
}

// config returns the election.Config that the options describe.
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
	if !isByPresence(mode) {
		cfg.Ranges, cfg.Weight = 0, 0
	}
	return cfg, nil
}

func isByPresence(mode election.Mode) bool {
	_, ok := mode.(election.ByPresence)
	return ok
}

// mostWeight bounds weights, so that they can be added.
const mostWeight = 1000

// faults returns all faults, with the names of the flags.
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

// contradictions returns the faults of flags that contradict the mode.
func (o ElectionOptions) contradictions(mode election.Mode) (errs []error) {
	if !o.Enabled && mode != (election.Renewed{}) {
		errs = append(errs, fmt.Errorf("--leader-election-mode=%s needs --enable-leader-election", o.ModeName))
	}
	switch byPresence := isByPresence(mode); {
	case o.Ranges < 1 || o.Ranges > ranges.MaxRanges:
		errs = append(errs, fmt.Errorf("--leader-election-ranges %d must be from 1 to %d", o.Ranges, ranges.MaxRanges))
	case o.Weight < 1 || o.Weight > mostWeight:
		errs = append(errs, fmt.Errorf("--leader-election-weight %d must be from 1 to %d", o.Weight, mostWeight))
	case !byPresence && (o.Ranges > 1 || o.Weight > 1):
		errs = append(errs, fmt.Errorf("--leader-election-ranges and --leader-election-weight are for --leader-election-mode=%s, and this is mode %s", election.ByPresence{}.Name(), o.ModeName))
	case byPresence && (o.Priority != 0 || o.Preempt):
		errs = append(errs, fmt.Errorf("--leader-election-priority and --leader-election-preempt contradict --leader-election-mode=%s, in which weights say who leads how much: give --leader-election-weight", o.ModeName))
	}
	if !mode.Electing() && o.EmulationVersion != "" {
		errs = append(errs, fmt.Errorf("--leader-election-emulation-version is for --leader-election-mode=%s", election.Coordinated{}.Name()))
	}
	if mode.Electing() && o.Name == server.ElectionsLease {
		errs = append(errs, fmt.Errorf("--leader-election-name %s is the name of the electing controllers' Lease in mode %s: give another", o.Name, o.ModeName))
	}
	return errs
}

// electionFlags has the flag for each field of an election.Config, or a description of a field that no flag sets.
var electionFlags = map[string]string{
	"Namespace":       "--leader-election-namespace",
	"Name":            "--leader-election-name",
	"Mode":            "--leader-election-mode",
	"Priority":        "--leader-election-priority",
	"Preempt":         "--leader-election-preempt",
	"LeaseDuration":   "--leader-election-lease-duration",
	"RenewDeadline":   "--leader-election-renew-deadline",
	"RetryPeriod":     "--leader-election-retry-period",
	"Detection":       "--leader-failure-detection",
	"SucceedUnfenced": "unfenced succession",
	"DrainTimeout":    "--controller-drain-timeout",

	"EmulationVersion": "--leader-election-emulation-version",
	"BinaryVersion":    "this build's version",
}

// detectFlags has the flag for each field of a detect.Config that can be faulty.
var detectFlags = map[string]string{"Interval": "--leader-failure-detection-interval", "Misses": "--leader-failure-detection-misses"}

// addElectionFlags adds the election's flags with o's values as defaults.
func addElectionFlags(o *ElectionOptions, fs *pflag.FlagSet) {
	fs.BoolVar(&o.Enabled, "enable-leader-election", o.Enabled,
		"Run the controllers only while this replica holds the lease. Required when several replicas share an etcd: "+
			"two replicas without this flag do not detect each other, and both run the controllers.")
	fs.StringVar(&o.Namespace, "leader-election-namespace", o.Namespace, "Namespace of the Lease.")
	fs.StringVar(&o.Name, "leader-election-name", o.Name, "Name of the Lease.")
	fs.StringVar(&o.ModeName, "leader-election-mode", o.ModeName,
		"How the leader keeps the lease. lease: it renews the lease. coordinated: it renews the lease, and the replica of the oldest "+
			"version is elected. for-life: it keeps the lease until it gives it up, is known to be dead, or is declared dead by regent "+
			"forget-replica. by-presence: it keeps the lease for as long as it renews another Lease, that of its presence. A replica whose mode is not the Lease's only stands by. See docs/ELECTION.md.")
	fs.IntVar(&o.Ranges, "leader-election-ranges", o.Ranges,
		"Into how many ranges the logical clusters of the shard are divided, each with a leader and a Lease of its own, in mode by-presence: "+
			"every replica leads a share. The number is the shard's, and changes when all replicas that are present want the same one. At most 1024.")
	fs.IntVar(&o.Weight, "leader-election-weight", o.Weight,
		"How large a share of the ranges this replica should lead, beside the weights of others, in mode by-presence.")
	fs.Int32Var(&o.Priority, "leader-election-priority", o.Priority,
		"Preference of this replica at a takeover. Replicas of a lower priority wait a quarter of the retry period before they campaign.")
	fs.BoolVar(&o.Preempt, "leader-election-preempt", o.Preempt,
		"Ask a leader of a lower priority to step down, once this replica has been ready to lead for a lease duration.")
	fs.StringVar(&o.EmulationVersion, "leader-election-emulation-version", o.EmulationVersion,
		"Version with which this replica stands in mode coordinated, where the oldest version leads. Not newer than the build's version, "+
			"which is the default. During an upgrade give new replicas the old version for as long as you may want to go back.")
	fs.DurationVar(&o.LeaseDuration, "leader-election-lease-duration", o.LeaseDuration,
		"How long standbys wait for a renewal before they take the lease. Whole seconds, at least 1s. "+
			"The same on all replicas.")
	fs.DurationVar(&o.RenewDeadline, "leader-election-renew-deadline", o.RenewDeadline,
		"How long the leader tries to renew before its term ends. Below the lease duration.")
	fs.DurationVar(&o.RetryPeriod, "leader-election-retry-period", o.RetryPeriod, "Time between renewals.")
	fs.StringVar((*string)(&o.Detection), "leader-failure-detection", string(o.Detection),
		"When a standby takes the lease before it has expired. off: never. crash: when the leader's process is seen to be "+
			"gone. suspect: also when that process has been silent for --leader-failure-detection-interval times "+
			"--leader-failure-detection-misses, or longer if it has been late before; this requires --fencing=enforce. Empty: suspect "+
			"if that is allowed, which it is not in mode for-life; otherwise crash. See docs/FAILOVER.md.")
	fs.DurationVar(&o.DrainTimeout, "controller-drain-timeout", o.DrainTimeout,
		"How long controllers may take to stop at the end of a term. If they take longer, the lease is left to expire, and the "+
			"replica does not campaign until they have stopped. Below the renew deadline. "+
			"0: the smaller of 5s and half the renew deadline.")
}
