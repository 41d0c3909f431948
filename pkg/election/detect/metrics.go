package detect

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"

	"github.com/regent-project/regent/pkg/election/internal/registry"
)

// state says what contact a standby has with the leader's process.
type state string

const (
	// idle: there is no leader, or this process leads.
	idle state = "idle"
	// absent: the Lease does not say where the leader's probe is.
	absent state = "absent"
	// connecting: no attempt has finished yet, or contact was just lost.
	connecting state = "connecting"
	alive      state = "alive"
	silent     state = "silent"
	dead       state = "dead"
	// The other states say why there is no contact. If the leader dies, its lease has to expire.
	unreachable  state = "unreachable"
	refused      state = "refused"
	untrusted    state = "untrusted"
	unauthorized state = "unauthorized"
)

var states = []state{idle, absent, connecting, alive, silent, dead, unreachable, refused, untrusted, unauthorized}

var (
	contact = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "regent_failure_detection_contact", StabilityLevel: metrics.ALPHA,
		Help: "1 for the state of this process's contact with the process of the leader under the Lease of this name, 0 for all other states. " +
			"While the state is absent, unreachable, refused, untrusted or unauthorized, a leader that crashes is succeeded only when its lease has expired.",
	}, []string{"name", "state"})
	failures = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "regent_failure_detection_failures_total", StabilityLevel: metrics.ALPHA,
		Help: "Failed attempts to make contact with a leader's process that had not answered before, by reason.",
	}, []string{"name", "reason"})
	allowedSilence = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "regent_failure_detection_allowed_silence_seconds", StabilityLevel: metrics.ALPHA,
		Help: "How long the leader that this process follows may be silent now, 0 if it follows nobody. It grows with the delays of beats in " +
			"the last minutes, whatever their reason.",
	}, []string{"name"})
	followers = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "regent_failure_detection_followers", StabilityLevel: metrics.ALPHA,
		Help: "Replicas that follow this process now.",
	}, []string{"name"})
	expelled = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "regent_failure_detection_expelled_total", StabilityLevel: metrics.ALPHA,
		Help: "Connections to this process's probe that were closed before they had shown that they know the replicas' secret, by reason: late " +
			"(they took too long) or crowded (there were too many of them).",
	}, []string{"name", "reason"})
)

// registerMetrics registers the metrics at a registry; nil: component-base's. It may be called any number of times.
func registerMetrics(to prometheus.Registerer) error {
	return registry.Register(to, contact, failures, allowedSilence, followers, expelled)
}

// shown counts the Detectors that show series, by the name of the Lease.
var shown = struct {
	mu    sync.Mutex
	names map[string]int
}{names: map[string]int{}}

// hide removes the series of a Detector, unless another one of that name shows them.
func hide(name string) {
	shown.mu.Lock()
	defer shown.mu.Unlock()
	if shown.names[name]--; shown.names[name] > 0 {
		return
	}
	delete(shown.names, name)
	for _, s := range states {
		contact.DeleteLabelValues(name, string(s))
	}
	for _, reason := range notMade {
		failures.DeleteLabelValues(name, string(reason))
	}
	followers.DeleteLabelValues(name)
	allowedSilence.DeleteLabelValues(name)
	for _, reason := range expulsions {
		expelled.DeleteLabelValues(name, reason)
	}
}

// notMade are the reasons why contact is not made, and expulsions those of closed connections.
var (
	notMade    = []state{unreachable, refused, untrusted, unauthorized}
	expulsions = []string{"late", "crowded"}
)

// show creates the series of a detector.
func show(name string) {
	shown.mu.Lock()
	defer shown.mu.Unlock()
	shown.names[name]++
	setState(name, idle)
	for _, reason := range notMade {
		failures.WithLabelValues(name, string(reason)).Add(0)
	}
	followers.WithLabelValues(name).Set(0)
	showPatience(name, 0)
	for _, reason := range expulsions {
		expelled.WithLabelValues(name, reason).Add(0)
	}
}

func showPatience(name string, allowed time.Duration) {
	allowedSilence.WithLabelValues(name).Set(allowed.Seconds())
}

func setState(name string, now state) {
	for _, s := range states {
		value := 0.0
		if s == now {
			value = 1
		}
		contact.WithLabelValues(name, string(s)).Set(value)
	}
}
