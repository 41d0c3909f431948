// Package detect finds out that a leader's process is dead before its lease expires.
//
// Every process listens on a port of its own, the probe, with a key that it makes at its start and never shares. A
// leader writes on its Lease the address of its probe and the fingerprint of its key. Each standby keeps one stream to
// the leader's probe, on which the leader sends a beat in every interval.
//
// When the leader's process dies, for whatever reason, its kernel breaks the stream. The standby dials again at once.
// If the address then refuses the connection, and the same key answered there before, the process counts as dead. This
// is strong evidence but no proof, because a firewall may refuse connections, too. So package election acts on it only
// where stale writes are refused, or where both sides accept the risk (election.Config.SucceedUnfenced).
//
// The kernel breaks streams of different threads at different times, and the last ones only when it has freed the
// process's memory. So each standby keeps a stream to a second port, too, which another thread serves: the witness.
//
// A leader that stays silent for a number of intervals is suspected: it hangs, it is paused, its machine has vanished,
// or the network is cut. How many these are depends on how late its beats have been in the last minutes (patience).
//
// The stream also carries what a leader says of its term, and what its standbys answer: see election.Detector.
//
// The probe gives no access to the API. It serves one request, which needs a secret that the replicas share, and it
// sends nothing but beats. If the probe cannot be reached, or another process answers there, standbys wait for the
// lease to expire, and the metrics show why.
package detect

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/internal/host"
)

// Config says how to detect failures. Begin with DefaultConfig.
type Config struct {
	// Name is the Lease's name, for metrics. Replica is how this process calls itself to the leader that it
	// follows.
	Name, Replica string
	// Listen is where the probe listens, as <host>:<port>; port 0 means any free port. Advertise is the host that
	// other processes dial.
	Listen, Advertise string
	// Interval is the time between two beats that this process requests from the leader. Misses is how many beats
	// in a row may be missing before the leader counts as silent, on machines that are quiet. New uses the values
	// of DefaultConfig for 0.
	Interval time.Duration
	Misses   int
	// Changed, if set, is called when a replica begins or ceases to follow this process. It must not block.
	Changed func()
}

// DefaultConfig returns values with which a leader that hangs is found after 0.8 s, on machines that are quiet.
func DefaultConfig() Config { return Config{Interval: 200 * time.Millisecond, Misses: 4} }

// The bounds of Interval and Misses. They protect a leader from requests for too many beats, and a standby from
// noticing nothing.
const (
	shortestInterval = 10 * time.Millisecond
	longestInterval  = time.Minute
	mostMisses       = 1000
)

// AddFlags adds flags for Interval and Misses, with c's values as defaults.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&c.Interval, "leader-failure-detection-interval", c.Interval,
		"Time between two signs of life that a standby asks of the leader. At least 10ms.")
	fs.IntVar(&c.Misses, "leader-failure-detection-misses", c.Misses,
		"How many of them in a row a leader may miss before it counts as silent. At least 2. If beats have been late in the last "+
			"minutes, it may miss more, up to 3 times as many.")
}

// ValidateAs checks Interval and Misses, and names them by what name returns, for example by flags.
func (c Config) ValidateAs(name func(field string) string) error {
	var faults []error
	if c.Interval < shortestInterval || c.Interval > longestInterval {
		faults = append(faults, fmt.Errorf("%s %v must be between %v and %v", name("Interval"), c.Interval, shortestInterval, longestInterval))
	}
	if c.Misses < 2 || c.Misses > mostMisses {
		faults = append(faults, fmt.Errorf("%s %d must be between 2, because one beat is late now and then, and %d", name("Misses"), c.Misses, mostMisses))
	}
	return errors.Join(faults...)
}

// silence returns how long a leader may be silent on machines that are quiet.
func (c Config) silence() time.Duration { return time.Duration(c.Misses) * c.Interval }

// Detector implements election.Detector. Between Open and Close other processes can follow this one.
type Detector struct {
	cfg           Config
	handshake     time.Duration // how long to wait for a peer until there is a stream
	stall         time.Duration // how long a peer may accept no data, or answer nothing
	certificate   tls.Certificate
	fingerprint   string
	confirmations chan election.Confirmation
	patience      patience
	// following is the latest call of Follow that runs; nil: this process follows nobody.
	following *atomic.Pointer[following]

	// Set by Open.
	secret   []byte
	listener net.Listener
	witness  net.Listener // nil if there is none
	server   *http.Server
	serving  sync.WaitGroup // the server and its requests

	mu        sync.Mutex
	said      election.Statement
	spoke     chan struct{}            // closed at the next Say
	followers map[election.Standby]int // how many streams each has
	closing   bool
	shown     []string // the names of Leases whose series this Detector shows
}

// show creates the series of a Lease, which Close removes.
func (d *Detector) show(lease string) {
	show(lease)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shown = append(d.shown, lease)
}

// New makes the key of this process. It opens nothing.
func New(cfg Config) (*Detector, error) {
	if cfg.Interval == 0 {
		cfg.Interval = DefaultConfig().Interval
	}
	if cfg.Misses == 0 {
		cfg.Misses = DefaultConfig().Misses
	}
	if err := cfg.ValidateAs(func(field string) string { return "detect: Config." + field }); err != nil {
		return nil, err
	}
	if err := host.Check(cfg.Advertise); err != nil {
		return nil, fmt.Errorf("detect: Config.Advertise %q %w", cfg.Advertise, err)
	}
	if cfg.Replica == "" || len(cfg.Replica) > longestReplica || strings.ContainsFunc(cfg.Replica, unicode.IsControl) {
		return nil, fmt.Errorf("detect: Config.Replica %q goes into an HTTP header: it must have 1 to %d bytes, and no control characters", cfg.Replica, longestReplica)
	}
	certificate, fingerprint, err := newKey()
	if err != nil {
		return nil, err
	}
	d := &Detector{
		cfg: cfg, handshake: handshakeTimeout, stall: stallTimeout, certificate: certificate, fingerprint: fingerprint,
		// A leader needs only one answer, so further ones are dropped.
		confirmations: make(chan election.Confirmation, 1),
		spoke:         make(chan struct{}),
		followers:     map[election.Standby]int{}, following: &atomic.Pointer[following]{},
	}
	d.show(cfg.Name)
	return d, nil
}

// Contact returns the address of the probe and the fingerprint of its key. It is zero before Open.
func (d *Detector) Contact() election.Contact {
	if d.listener == nil {
		return election.Contact{}
	}
	return election.Contact{Address: net.JoinHostPort(d.cfg.Advertise, portOf(d.listener)), Key: d.fingerprint}
}

// ContactState returns how the contact with the leader's process is. Its State is one of
// regent_failure_detection_contact.
func (d *Detector) ContactState() *election.ContactState { return contactState(d.following.Load()) }

// contactState returns how the contact of a call of Follow is; nil if there is no such call.
func contactState(f *following) *election.ContactState {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &election.ContactState{State: string(f.state), Heard: f.last}
	if f.state != absent {
		out.AllowedSilence = f.d.patience.allowed(time.Now(), f.d.cfg.silence())
	}
	return out
}

var (
	_ election.Detector        = (*Detector)(nil)
	_ election.ContactReporter = (*Detector)(nil)
)
