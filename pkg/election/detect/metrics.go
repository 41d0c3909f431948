package detect

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// state is what a standby has of the leader it follows.
type state string

const (
	// idle: there is none to follow: nobody leads, or this process does.
	idle state = "idle"
	// absent: the leader does not say where its probe is.
	absent state = "absent"
	// connecting: no attempt has had an outcome yet, or contact was just lost.
	connecting state = "connecting"
	alive      state = "alive"
	silent     state = "silent"
	dead       state = "dead"
	// The others are why there is no contact: the lease has to expire if the leader dies.
	unreachable  state = "unreachable"
	refused      state = "refused"
	untrusted    state = "untrusted"
	unauthorized state = "unauthorized"
)

var states = []state{idle, absent, connecting, alive, silent, dead, unreachable, refused, untrusted, unauthorized}

var (
	contact = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "regent_failure_detection_contact", StabilityLevel: metrics.ALPHA,
		Help: "1 for what contact this process has with the process of the leader under the Lease of this name, 0 for all other states. " +
			"While it is absent, unreachable, refused, untrusted or unauthorized, a crash of the leader is followed only when its lease expires.",
	}, []string{"name", "state"})
	failures = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "regent_failure_detection_failures_total", StabilityLevel: metrics.ALPHA,
		Help: "Attempts to make contact with a leader's process that never answered that failed, by why.",
	}, []string{"name", "reason"})
	followers = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "regent_failure_detection_followers", StabilityLevel: metrics.ALPHA,
		Help: "Replicas that follow this process now.",
	}, []string{"name"})
	expelled = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "regent_failure_detection_expelled_total", StabilityLevel: metrics.ALPHA,
		Help: "Connections to this process's probe that were closed before they had shown the shard's credential, by why: late, " +
			"they took too long; crowded, there were too many of them.",
	}, []string{"name", "reason"})
)

var registerMetrics = sync.OnceValue(func() error {
	for _, m := range []metrics.Registerable{contact, failures, followers, expelled} {
		if err := legacyregistry.Register(m); err != nil {
			return err
		}
	}
	return nil
})

// show gives a detector its series.
func show(name string) {
	setState(name, idle)
	for _, reason := range []state{unreachable, refused, untrusted, unauthorized} {
		failures.WithLabelValues(name, string(reason)).Add(0)
	}
	followers.WithLabelValues(name).Set(0)
	for _, reason := range []string{"late", "crowded"} {
		expelled.WithLabelValues(name, reason).Add(0)
	}
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
