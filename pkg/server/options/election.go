package options

import (
	"github.com/spf13/pflag"

	"github.com/regent-project/regent/pkg/election"
)

// defaultElection is the election of the contract.
func defaultElection() election.Config {
	cfg := election.DefaultConfig()
	cfg.Namespace, cfg.Name = "kube-system", "regent-controllers"
	return cfg
}

// electionFlags are the flags of an election's fields.
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
}

// electionFaults are those of the election, by the names of its flags.
func electionFaults(c election.Config) error {
	return c.ValidateAs(func(field string) string { return electionFlags[field] })
}

// addElectionFlags adds the election's flags with c's values as defaults.
func addElectionFlags(c *election.Config, fs *pflag.FlagSet) {
	fs.BoolVar(&c.Enabled, "enable-leader-election", c.Enabled,
		"Run the controllers only while this replica holds the lease. Required when several replicas share an etcd: "+
			"two replicas without this flag do not detect each other, and both run the controllers.")
	fs.StringVar(&c.Namespace, "leader-election-namespace", c.Namespace, "Namespace of the Lease.")
	fs.StringVar(&c.Name, "leader-election-name", c.Name, "Name of the Lease.")
	fs.StringVar((*string)(&c.Mode), "leader-election-mode", string(c.Mode),
		"What it takes to keep the lease: lease: the leader renews it; coordinated: "+
			"so it does, and the candidate of the oldest version is elected; for-life: the leader keeps it until it gives up, is known "+
			"to be dead, or regent forget-replica says so. Replicas of another mode than the Lease's stand by. See docs/ELECTION.md.")
	fs.Int32Var(&c.Priority, "leader-election-priority", c.Priority,
		"How much this replica is preferred at a takeover: those of a lower priority leave it a head start of a quarter of the retry period.")
	fs.BoolVar(&c.Preempt, "leader-election-preempt", c.Preempt,
		"Ask a leader of a lower priority to make way, once this replica could have led for a lease duration.")
	fs.StringVar(&c.EmulationVersion, "leader-election-emulation-version", c.EmulationVersion,
		"Version that this replica stands with in mode coordinated, where the oldest leads; not newer than the build's, which it is "+
			"if empty. Give the old version to new replicas until a roll can not be undone any more.")
	fs.DurationVar(&c.LeaseDuration, "leader-election-lease-duration", c.LeaseDuration,
		"How long others wait for a renewal before they take the lease. Whole seconds, at least 1s. "+
			"The same on all replicas.")
	fs.DurationVar(&c.RenewDeadline, "leader-election-renew-deadline", c.RenewDeadline,
		"How long the leader tries to renew before its term ends. Below the lease duration.")
	fs.DurationVar(&c.RetryPeriod, "leader-election-retry-period", c.RetryPeriod, "Time between renewals.")
	fs.StringVar((*string)(&c.Detection), "leader-failure-detection", string(c.Detection),
		"On what signs a standby takes the lease before it has expired: off: on none; crash: when the leader's process is "+
			"seen to be gone; suspect: also when it has been silent for --leader-failure-detection-interval times "+
			"--leader-failure-detection-misses, which requires --fencing=enforce. See docs/FAILOVER.md.")
	fs.DurationVar(&c.DrainTimeout, "controller-drain-timeout", c.DrainTimeout,
		"How long controllers may take to stop at the end of a term. Later, the lease is left to expire and the replica "+
			"does not campaign until they have stopped. Below the renew deadline. "+
			"0: the smaller of 5s and half the renew deadline.")
}
