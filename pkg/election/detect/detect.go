// Package detect learns that a leader's process is dead before its lease expires.
//
// Every process listens on a port of its own, the probe, with a key that it made at its start and never shares. A leader
// says on its Lease where its probe is, and the fingerprint of its key. Each standby holds one stream to it, on which the
// leader sends a beat every interval. The kernel breaks the stream when the leader's process dies, whatever of; the standby
// dials again at once, and if the address refuses, where the same key answered before, the process is taken for dead. That
// is strong evidence, no proof: a firewall may refuse too. So election acts on it only where stale writes are refused.
//
// A leader that is silent for a number of intervals is suspected: it hangs, it is paused, or the network is cut.
//
// The stream also carries what a leader says of its term, and what its standbys answer: see election.Detector.
//
// The probe is no way to the API: it knows one request, by a key that etcd keeps for the shard's replicas, and nothing but
// beats comes back. A probe that cannot be reached, or is not what the Lease says, costs nothing but the time until the
// lease expires, and shows in the metrics.
package detect

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/regent-project/regent/pkg/election"
)

// Config says how to detect. Start from DefaultConfig.
type Config struct {
	// Name is the Lease's, for metrics; Replica is what this process calls itself to the leader it follows.
	Name, Replica string
	// Listen is where the probe listens, host:port; port 0 is any free port. Advertise is the host that peers dial.
	Listen, Advertise string
	// Interval is the time between two beats that this process asks of the leader, Misses how many of them may be missed
	// in a row before the leader is silent. To New, 0 stands for what DefaultConfig has.
	Interval time.Duration
	Misses   int
}

// DefaultConfig finds a hang after 0.8 s.
func DefaultConfig() Config { return Config{Interval: 200 * time.Millisecond, Misses: 4} }

// The bounds of an interval, and of misses. A standby may not ask more of a leader, and one that asks less would hardly
// notice anything.
const (
	shortestInterval = 10 * time.Millisecond
	longestInterval  = time.Minute
	mostMisses       = 1000
)

// AddFlags adds the flags with c's values as defaults.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&c.Interval, "leader-failure-detection-interval", c.Interval,
		"Time between two signs of life that a standby asks of the leader. At least 10ms.")
	fs.IntVar(&c.Misses, "leader-failure-detection-misses", c.Misses,
		"How many of them in a row a leader may miss before it counts as silent. At least 2.")
}

// Validate reports every fault of what flags can set, in words that name the flag.
func (c Config) Validate() error {
	var faults []error
	if c.Interval < shortestInterval || c.Interval > longestInterval {
		faults = append(faults, fmt.Errorf("--leader-failure-detection-interval %v must be between %v and %v", c.Interval, shortestInterval, longestInterval))
	}
	if c.Misses < 2 || c.Misses > mostMisses {
		faults = append(faults, fmt.Errorf("--leader-failure-detection-misses %d must be between 2, because one beat is late now and then, and %d", c.Misses, mostMisses))
	}
	return errors.Join(faults...)
}

// silence is how long a leader may be silent.
func (c Config) silence() time.Duration { return time.Duration(c.Misses) * c.Interval }

// Detector is an election.Detector. It follows whom it is told to, and lets others follow this process between Open and
// Close.
type Detector struct {
	cfg           Config
	handshake     time.Duration // how long to wait for a peer until there is a stream
	stall         time.Duration // how long a peer may take nothing of a stream, or not answer
	certificate   tls.Certificate
	fingerprint   string
	confirmations chan election.Confirmation

	// Set by Open.
	secret   []byte
	listener net.Listener
	server   *http.Server
	serving  sync.WaitGroup // the server and its requests

	mu        sync.Mutex
	said      election.Statement
	spoke     chan struct{}            // closed at the next statement
	followers map[election.Standby]int // streams of each
	closing   bool
}

// New makes the process's key. Nothing is opened yet.
func New(cfg Config) (*Detector, error) {
	if cfg.Interval == 0 {
		cfg.Interval = DefaultConfig().Interval
	}
	if cfg.Misses == 0 {
		cfg.Misses = DefaultConfig().Misses
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if len(cfg.Replica) > longestReplica || strings.ContainsFunc(cfg.Replica, unicode.IsControl) {
		return nil, fmt.Errorf("the replica's name %q is told to leaders in a header: it may have up to %d bytes, and no control characters", cfg.Replica, longestReplica)
	}
	certificate, fingerprint, err := newKey()
	if err != nil {
		return nil, err
	}
	if err := registerMetrics(); err != nil {
		return nil, fmt.Errorf("cannot register the metrics of failure detection: %w", err)
	}
	d := &Detector{
		cfg: cfg, handshake: handshakeTimeout, stall: stallTimeout, certificate: certificate, fingerprint: fingerprint,
		// A leader needs one answer; what does not fit is dropped.
		confirmations: make(chan election.Confirmation, 1),
		spoke:         make(chan struct{}),
		followers:     map[election.Standby]int{},
	}
	show(cfg.Name)
	return d, nil
}

// Contact says where the probe is. It is zero before Open.
func (d *Detector) Contact() election.Contact {
	if d.listener == nil {
		return election.Contact{}
	}
	_, port, err := net.SplitHostPort(d.listener.Addr().String())
	if err != nil {
		return election.Contact{}
	}
	return election.Contact{Address: net.JoinHostPort(d.cfg.Advertise, port), Key: d.fingerprint}
}

var _ election.Detector = (*Detector)(nil)
