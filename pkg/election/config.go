package election

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/leaderelection"
)

// maxDefaultDrain is the longest drain timeout that is used when Config.DrainTimeout is 0.
const maxDefaultDrain = 5 * time.Second

// Config describes one election. Begin with DefaultConfig, and set at least Namespace, Name and Client.
type Config struct {
	// Namespace and Name are those of the Lease.
	Namespace, Name string
	// Mode says what it takes to keep the lease; nil means Renewed. If the Lease shows another mode, this replica
	// stands by for as long as a replica of that mode takes the lease whenever it is free. The repository of Regent
	// says more about the modes: docs/ELECTION.md.
	Mode Mode
	// Candidates is a client for the LeaseCandidates of the Lease's namespace. Mode Coordinated needs it. In other
	// modes the Elector uses it to delete the LeaseCandidates of dead processes of this machine that ran in mode
	// Coordinated; nil: it deletes none.
	Candidates CandidateClient
	// Priority says how much this replica is preferred to others. When the lease becomes free, replicas of lower
	// priority leave it to this one for a quarter of the retry period.
	//
	// With Preempt, this replica also asks a leader of lower priority to step down. It asks after it could have led
	// for one lease duration, and waits twice as long after each of its terms that failed in a row.
	//
	// Both need a Detector, because a leader learns the priorities of its standbys from their streams to it.
	// Neither can be used in a mode that is Electing.
	Priority int32
	Preempt  bool
	// Weight is how large a share of many leases this process should hold, beside others. Only package ranges looks
	// at it. 0 means 1. Ranges is how many ranges this process wants, which package ranges sets.
	Weight, Ranges int
	// ForgetCommand is the command that an operator types, followed by the name of a process (Config.Instance), to
	// declare it dead while it holds the lease for life. Events and logs quote it, in every mode. Empty: they
	// quote a kubectl command.
	ForgetCommand string

	// LeaseDuration is how long other replicas wait for a renewal before they take the lease. A Lease holds whole
	// seconds, so it must be a whole number of seconds, and at least one.
	LeaseDuration time.Duration
	// RenewDeadline is how long a leader retries a renewal before its term ends. It must be below LeaseDuration.
	RenewDeadline time.Duration
	// RetryPeriod is the time between two renewals.
	RetryPeriod time.Duration
	// DrainTimeout is how long a LeadFunc may take to return after its context has ended. If it takes longer, the
	// process is quarantined. It must be below RenewDeadline. 0 means the smaller of 5 s and half of RenewDeadline.
	DrainTimeout time.Duration

	// Cluster is the name of the logical cluster in which the Lease lives, not the path. It only goes into fencing
	// tokens. The contexts of renewals and of the release carry the token (fence.From), and Client should send it
	// (fence.FromContext).
	Cluster logicalcluster.Name
	// ReplicasDirectory is a directory in which each process of this machine that runs for this Lease locks a file
	// of its own. A restarted replica then sees that its predecessor is dead, and need not wait for the lease to
	// expire. Use it for one Lease only: a standby removes the files of dead processes. It is created if it does
	// not exist. Empty: a restarted replica waits.
	ReplicasDirectory string
	// Client is a client for the Leases of Namespace.
	Client LeaseClient
	// Fenced promises that the server behind Client refuses every write of a term that is over, in the transaction
	// of that write, and that all that writes in a term sends its token: what has none, nobody can refuse, unless
	// the server demands one. The Lease says so to other replicas, which may then succeed this holder early. New
	// believes it; package leader has the server prove its part.
	Fenced bool
	// SucceedUnfenced allows standbys to succeed this process without a fence when its address refuses connections,
	// and this process to succeed holders that allow it, too. It publishes the choice on the Lease: a holder that
	// does not make it is waited for.
	//
	// The risk: a refused connection is strong evidence of a death and no proof, because a firewall or proxy can
	// refuse, too. If the holder lives, both work until it sees that it is deposed: for milliseconds if its watch
	// works, for a retry period if its writes do, and for up to the lease duration if it cannot reach the server.
	// So choose it only if what a leader does bears that. A holder that is silent is never succeeded for that
	// without a fence. It needs a Detector, and mode ForLife contradicts it.
	SucceedUnfenced bool
	// Replica is the name of this replica, which people read, and by which a step down prefers a standby. Each
	// holder identity begins with it. It may stay when the process is started anew, but no two processes should
	// have one name at a time. It has at most 256 bytes of UTF-8. Empty: the host name and a part of a random uuid,
	// new with each start.
	//
	// Instance is the name of this process, which no other one ever has: Forget declares a process dead by it.
	// Empty: Replica and a part of a random uuid.
	Replica, Instance string
	// URL is where others reach this process, as https://<host>:<port>; empty: nowhere. The Lease and the Detector
	// tell it. The election itself does not use it.
	URL string
	// Detector, if set, finds out that the holder's process has died, before the lease expires. Detection says
	// which of its signs a standby acts on. Empty means the fastest that is safe: DetectSuspect if Fenced is set
	// and the mode allows it, otherwise DetectCrash. If the holder's writes are not fenced, a standby acts on none
	// of these signs, except as SucceedUnfenced says. It only believes the holder's own statement that its term is
	// over.
	Detector  Detector
	Detection Detection
	// Notify, if set, receives what people should know of: see Notice. It must not block.
	Notify func(Notice)
	// Assigned, if set, returns which process should hold the lease while several could: its Instance, or empty if
	// it does not matter. The channel is closed when that may have changed. Others leave a free lease to that
	// process for a quarter of the retry period, unless the last holder has named a successor. It must not block.
	Assigned func() (instance string, changed <-chan struct{})
	// Changed, if set, is called when the Lease shows another holder, or none any more. It must not block.
	Changed func()

	// Election is the name of the election of which this lease is one of many, such as the leases of ranges.
	// Metrics then show the election, and not each lease, and a Presence tells it. Empty: Name.
	Election string

	// unelected is set by NewUnelected, and presence by NewPresence.
	unelected, presence bool
}

// DefaultConfig returns the timings that Kubernetes components use. Namespace, Name and Client are not set.
func DefaultConfig() Config {
	return Config{
		Mode:          Renewed{},
		LeaseDuration: 15 * time.Second,
		RenewDeadline: 10 * time.Second,
		RetryPeriod:   2 * time.Second,
	}
}

// EffectiveDetection returns Detection, or its default if it is empty.
func (c Config) EffectiveDetection() Detection {
	switch {
	case c.Detection != "":
		return c.Detection
	case c.Fenced && !c.kind().unsuspected:
		return DetectSuspect
	}
	return DetectCrash
}

// EffectiveDrainTimeout returns DrainTimeout, or its default if it is 0.
func (c Config) EffectiveDrainTimeout() time.Duration {
	if c.DrainTimeout != 0 {
		return c.DrainTimeout
	}
	return min(maxDefaultDrain, c.RenewDeadline/2)
}

// EndTimeout returns the longest time that the end of a term takes if the LeadFunc returns within the drain timeout. It
// includes the drain, a renewal that is under way, the release with its retries, and the removal of what the mode keeps
// beside the Lease. Keep the server behind Client alive for that long after you have ended Run's context.
func (c Config) EndTimeout() time.Duration {
	requests := 3 + c.kind().requests
	return c.EffectiveDrainTimeout() + c.releaseTimeout() + time.Duration(requests)*c.requestTimeout()
}

// Validate checks everything that can be wrong in the values of c, and names faulty fields by their Go names. Fields
// that are missing are left to New. NewUnelected needs valid timings, too: they say when a lease that another process
// holds has expired.
func (c Config) Validate() error {
	return c.ValidateAs(func(field string) string { return field })
}

// ValidateAs does what Validate does, but names the fields by what name returns, for example by flags.
func (c Config) ValidateAs(name func(field string) string) error {
	faults := slices.Concat(c.leaseFaults(name), c.modeFaults(name))
	return errors.Join(append(faults, c.drainFaults(name, len(faults) > 0)...)...)
}

// findCluster is the command that prints the name of the current workspace's logical cluster.
const findCluster = `kubectl get logicalcluster cluster -o jsonpath='{.metadata.annotations.kcp\.io/cluster}'`

// longestName is how long Replica may be: fencing tokens and probes carry the holder identities that begin with it.
const longestName = 256

// leaseFaults returns what is wrong with the Lease's name and with the timings.
func (c Config) leaseFaults(name func(string) string) (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if msgs := validation.IsDNS1123Label(c.Namespace); len(msgs) > 0 {
		fault("%s %q is not a namespace name: %s", name("Namespace"), c.Namespace, strings.Join(msgs, "; "))
	}
	if msgs := validation.IsDNS1123Subdomain(c.Name); len(msgs) > 0 {
		fault("%s %q is not a Lease name: %s", name("Name"), c.Name, strings.Join(msgs, "; "))
	}
	if c.Cluster != "" && !(c.Cluster.IsValid() && c.Cluster.Path().IsValid()) {
		fault("%s %q is not the name of a logical cluster: give the name, and not the path. In that workspace this prints it: %s", name("Cluster"), c.Cluster, findCluster)
	}
	if len(c.Replica) > longestName || !utf8.ValidString(c.Replica) {
		fault("%s %.40q goes into fencing tokens: give at most %d bytes of UTF-8", name("Replica"), c.Replica, longestName)
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

// modeFaults returns what is wrong with the mode, and which other fields contradict it.
func (c Config) modeFaults(name func(string) string) (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	kind := c.kind()
	switch ranked := c.Priority != 0 || c.Preempt; {
	case ranked && kind.electing:
		fault("%s and %s contradict %s=%s: in that mode versions decide", name("Priority"), name("Preempt"), name("Mode"), kind.name)
	case ranked && c.Detection == DetectOff:
		fault("%s and %s need %s=%s or %s: without failure detection a leader does not know its standbys", name("Priority"), name("Preempt"), name("Detection"), DetectCrash, DetectSuspect)
	}
	switch {
	case c.SucceedUnfenced && c.Detection == DetectOff:
		fault("%s needs %s=%s or %s: without failure detection nobody sees that a process refuses connections", name("SucceedUnfenced"), name("Detection"), DetectCrash, DetectSuspect)
	case c.SucceedUnfenced && kind.unsuspected:
		fault("%s contradicts %s=%s: in that mode a holder is succeeded only when its death is certain", name("SucceedUnfenced"), name("Mode"), kind.name)
	}
	if kind.faults != nil {
		faults = append(faults, kind.faults(c, name)...)
	}
	if c.Detection != "" && !slices.Contains(detectionModes, c.Detection) {
		fault("%s %q must be one of %q", name("Detection"), c.Detection, detectionModes)
	}
	return faults
}

// drainFaults returns what is wrong with the drain timeout. If other timings are wrong (others), it checks only the
// sign: most other faults would be consequences. After each renewal a term works for the lease duration less the drain
// timeout. client-go must renew within that time, or the term would end before its first renewal.
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

// kind returns the properties of the mode.
func (c Config) kind() kind {
	if c.Mode == nil {
		return Renewed{}.kind()
	}
	return c.Mode.kind()
}

// jittered returns the longest time that client-go waits for a period.
func jittered(period time.Duration) time.Duration {
	return time.Duration(leaderelection.JitterFactor * float64(period))
}

// requestTimeout bounds each request except watches. It is short enough for a renewal to be retried before its
// deadline.
func (c Config) requestTimeout() time.Duration { return c.RenewDeadline / 3 }

// releaseTimeout bounds the release, all retries included.
func (c Config) releaseTimeout() time.Duration { return c.RenewDeadline / 2 }

// usable is how long a term may work after its last renewal was sent. The rest of the lease is left for the drain.
func (c Config) usable() time.Duration { return c.LeaseDuration - c.EffectiveDrainTimeout() }
