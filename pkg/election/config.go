package election

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/leaderelection"
)

// maxDefaultDrain bounds the drain timeout that is used when none is given.
const maxDefaultDrain = 5 * time.Second

// Config describes one election. Start from DefaultConfig, and name the Lease.
type Config struct {
	// Namespace and Name name the Lease.
	Namespace, Name string
	// Mode is what it takes to keep the lease; nil stands for Renewed. A replica whose mode is not the Lease's stands by until
	// nobody of that mode takes a lease that is free: see docs/ELECTION.md.
	Mode Mode
	// Candidates reaches the LeaseCandidates of the Lease's namespace. Mode Coordinated needs it. In other modes it serves to
	// delete what dead processes of this machine have left, if they led in mode Coordinated; nil: nothing is deleted.
	Candidates CandidateClient
	// Priority says how much this process is preferred to others: at a takeover those of a lower one leave it a head start of a
	// quarter of the retry period. If Preempt, it also asks a leader of a lower one to make way, once it could have led for a lease
	// duration, and ever more seldom if its terms fail. Both need a Detector, and go by the standbys that follow a leader. Not in
	// a mode that is Electing.
	Priority int32
	Preempt  bool
	// ForgetCommand is what operators type, followed by the name of a replica (Config.Replica), to say that a process that
	// holds the lease for life is dead. Events name it, in any mode. Empty: the command is kubectl's.
	ForgetCommand string

	// LeaseDuration is how long others wait for a renewal before they take the lease: whole seconds, at least one,
	// for that is what a Lease can hold.
	LeaseDuration time.Duration
	// RenewDeadline is how long a leader tries to renew before its term ends. Below LeaseDuration.
	RenewDeadline time.Duration
	// RetryPeriod is the time between renewals.
	RetryPeriod time.Duration
	// DrainTimeout is how long a LeadFunc may take to return once its term has ended, before the process is
	// quarantined. Below RenewDeadline. 0 stands for the smaller of 5 s and half the renew deadline.
	DrainTimeout time.Duration

	// Cluster is the logical cluster that Client talks to. It only names the Lease in fencing tokens, which the renewals and
	// the release carry in their contexts (fence.From): Client should send them (fence.FromContext).
	Cluster logicalcluster.Name
	// Hostname begins the holder identities, for people to read. Empty: what the operating system says.
	Hostname string
	// ReplicasDirectory is where processes that may succeed each other on one machine lock a file each, so that a replica
	// that restarts need not wait for its dead predecessor's lease. One Lease's only: who stands for it removes what others
	// left there. It is created if missing. Empty: they wait.
	ReplicasDirectory string
	// Client reaches the Lease's namespace.
	Client LeaseClient
	// Fenced says that the server behind Client refuses, in the transaction, every write of a term that is over and
	// every write of a leader without a token. The Lease tells others: a holder that is fenced can be succeeded early.
	Fenced bool
	// Replica is what this process calls itself, for people. Empty: the hostname and a part of a random uuid.
	Replica string
	// Detector, if set, learns of the death of the holder's process before the lease expires, and Detection says on which
	// of its signs to act; empty stands for DetectCrash. A holder whose writes are not fenced is succeeded on none of
	// them, but on its own word.
	Detector  Detector
	Detection Detection
	// Notify, if set, is told what people should find out about. It must not block.
	Notify func(Notice)

	// unelected: see NewUnelected.
	unelected bool
}

// DefaultConfig returns the timings everyone uses. Namespace, Name and Client are missing.
func DefaultConfig() Config {
	return Config{
		Mode:          Renewed{},
		LeaseDuration: 15 * time.Second,
		RenewDeadline: 10 * time.Second,
		RetryPeriod:   2 * time.Second,
		Detection:     DetectCrash,
	}
}

// EffectiveDrainTimeout is DrainTimeout, or what stands for it when it is 0.
func (c Config) EffectiveDrainTimeout() time.Duration {
	if c.DrainTimeout != 0 {
		return c.DrainTimeout
	}
	return min(maxDefaultDrain, c.RenewDeadline/2)
}

// EndTimeout bounds how long a term takes to end in order if its LeadFunc returns in time: the drain, a renewal in flight,
// the release, whose last attempt may begin just before its own bound, and the look for what else to clear. Who ends
// Run's context keeps Client's server alive that long.
func (c Config) EndTimeout() time.Duration {
	requests := 3 + c.kind().requests
	return c.EffectiveDrainTimeout() + c.releaseTimeout() + time.Duration(requests)*c.requestTimeout()
}

// Validate reports every fault of what a configuration says by itself, by the names of its fields. New checks the rest: what is
// missing. NewUnelected checks timings, too: they say when a lease that others hold has expired.
func (c Config) Validate() error {
	return c.ValidateAs(func(field string) string { return field })
}

// ValidateAs is Validate with other names for the fields, such as those of flags.
func (c Config) ValidateAs(name func(field string) string) error {
	faults := slices.Concat(c.leaseFaults(name), c.modeFaults(name))
	return errors.Join(append(faults, c.drainFaults(name, len(faults) > 0)...)...)
}

// leaseFaults are those of the Lease's name and of the timings.
func (c Config) leaseFaults(name func(string) string) (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if msgs := validation.IsDNS1123Label(c.Namespace); len(msgs) > 0 {
		fault("%s %q is not a namespace name: %s", name("Namespace"), c.Namespace, strings.Join(msgs, "; "))
	}
	if msgs := validation.IsDNS1123Subdomain(c.Name); len(msgs) > 0 {
		fault("%s %q is not a Lease name: %s", name("Name"), c.Name, strings.Join(msgs, "; "))
	}
	switch d := c.LeaseDuration; {
	case d < time.Second || d%time.Second != 0 || d > math.MaxInt32*time.Second:
		fault("%s %v must be whole seconds, at least 1s", name("LeaseDuration"), d)
	case c.RenewDeadline >= d:
		fault("%s %v must be below %s %v", name("RenewDeadline"), c.RenewDeadline, name("LeaseDuration"), d)
	}
	switch {
	case c.RetryPeriod <= 0:
		fault("%s %v must be positive", name("RetryPeriod"), c.RetryPeriod)
	case c.RenewDeadline <= jittered(c.RetryPeriod):
		fault("%s %v must be above %v times %s %v", name("RenewDeadline"), c.RenewDeadline, leaderelection.JitterFactor, name("RetryPeriod"), c.RetryPeriod)
	}
	return faults
}

// modeFaults are those of the mode, and of what contradicts it.
func (c Config) modeFaults(name func(string) string) (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	kind := c.kind()
	switch ranked := c.Priority != 0 || c.Preempt; {
	case ranked && kind.electing:
		fault("%s and %s contradict %s=%s, in which versions decide", name("Priority"), name("Preempt"), name("Mode"), kind.name)
	case ranked && c.Detection == DetectOff:
		fault("%s and %s need %s=%s or %s: by it a leader knows its standbys", name("Priority"), name("Preempt"), name("Detection"), DetectCrash, DetectSuspect)
	}
	if kind.faults != nil {
		faults = append(faults, kind.faults(c, name)...)
	}
	if c.Detection != "" && !slices.Contains(DetectionModes, c.Detection) {
		fault("%s %q must be one of %q", name("Detection"), c.Detection, DetectionModes)
	}
	return faults
}

// drainFaults are those of the drain timeout. Where other timings are faulty, most of them would only repeat that. A term works for
// the lease duration less the drain timeout after each renewal: if that is no longer than client-go may wait before it renews, a
// term ends before its first renewal.
func (c Config) drainFaults(name func(string) string, others bool) []error {
	drain := c.EffectiveDrainTimeout()
	switch {
	case c.DrainTimeout < 0:
		return []error{fmt.Errorf("%s %v must not be negative", name("DrainTimeout"), c.DrainTimeout)}
	case others:
		return nil
	case drain >= c.RenewDeadline:
		return []error{fmt.Errorf("%s %v must be below %s %v", name("DrainTimeout"), drain, name("RenewDeadline"), c.RenewDeadline)}
	case c.LeaseDuration-drain <= jittered(c.RetryPeriod):
		return []error{fmt.Errorf("%s %v less the drain timeout %v leaves no time to renew every %v: lower %s or %s",
			name("LeaseDuration"), c.LeaseDuration, drain, c.RetryPeriod, name("DrainTimeout"), name("RetryPeriod"))}
	}
	return nil
}

// kind describes the mode.
func (c Config) kind() kind {
	if c.Mode == nil {
		return Renewed{}.kind()
	}
	return c.Mode.kind()
}

// jittered is the longest that client-go waits for a period.
func jittered(period time.Duration) time.Duration {
	return time.Duration(leaderelection.JitterFactor * float64(period))
}

// requestTimeout bounds each call to the API but watches, so that a renewal can be tried again before its deadline.
func (c Config) requestTimeout() time.Duration { return c.RenewDeadline / 3 }

// releaseTimeout bounds a release with all its retries.
func (c Config) releaseTimeout() time.Duration { return c.RenewDeadline / 2 }

// usable is how long a term may work after a renewal was sent: what is left of the lease must suffice for the drain.
func (c Config) usable() time.Duration { return c.LeaseDuration - c.EffectiveDrainTimeout() }
