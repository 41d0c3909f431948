package lease

import (
	"encoding/json"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PresenceAnnotation is where a holder says what it is: on its Lease, on its LeaseCandidate, and on the Lease that stands for its life.
const PresenceAnnotation = "regent.dev/presence"

// The values of Presence.Fencing: whether the storage checks the holder's writes against its term.
const (
	Fenced   = "fenced"
	Unfenced = "unfenced"
)

// Contact says how to reach a process, and how to know that it is this one: see election.Contact.
type Contact struct {
	Address string `json:"address,omitempty"`
	Key     string `json:"key,omitempty"`
}

// Presence is what a holder tells its peers about itself, as JSON.
//
// It names the holder identity it belongs to: others may take the lease with a patch or a stock lock and leave the
// annotation standing, and what it then says is about somebody else.
type Presence struct {
	Holder string `json:"holder"`
	// Process is the uuid of the holder's process, BootID the boot of the machine it runs on.
	Process string `json:"process,omitempty"`
	// File tells the process's file from a copy of it.
	File   string `json:"file,omitempty"`
	BootID string `json:"bootID,omitempty"`
	// Replica is what the holder's process calls itself.
	Replica string `json:"replica,omitempty"`
	// Fencing says how the holder's writes are fenced.
	Fencing string `json:"mode,omitempty"`
	// ElectionMode is the mode in which the lease is held. A Lease without a holder keeps it.
	ElectionMode Mode `json:"electionMode,omitempty"`
	// Owner is the uid of the object that stands for the holder's life, which is among the Lease's owners, Life its name if it is
	// a Lease that the holder made.
	Owner types.UID `json:"owner,omitempty"`
	Life  string    `json:"life,omitempty"`
	// Contact is how to reach the holder's process otherwise than through the Lease.
	Contact Contact `json:"probe,omitzero"`
	// Suspicions counts the terms that began on a suspicion, up to this one, since there was calm. PresumedDead is the holder
	// whose process seemed to be dead, so that this term began: if it lives, that is one more.
	Suspicions   int    `json:"suspicions,omitempty"`
	PresumedDead string `json:"presumedDead,omitempty"`
	// Priority is the holder's, StandbyPriority the highest of its standbys, of the same mode, if that is higher. Alone says
	// that there are no standbys of that mode. A Lease without a holder has what its last holder saw when it gave up; Alone
	// only if that stops.
	Priority        int32 `json:"priority,omitempty"`
	StandbyPriority int32 `json:"standbyPriority,omitempty"`
	Alone           bool  `json:"alone,omitempty"`
	// LastStepDown is why the lease was last given up by its holder, from whoever did it.
	LastStepDown string `json:"lastStepDown,omitempty"`
	// FailedParts are the parts of its work for which the last holder gave the lease up. Only a Lease without a holder
	// has them: whoever acquires begins anew.
	FailedParts []string `json:"failedParts,omitempty"`
	// Failed says that the last holder gave the lease up because of its own work. Preferred is the replica that should
	// hold it next. Both as with FailedParts.
	Failed    bool   `json:"failed,omitempty"`
	Preferred string `json:"preferred,omitempty"`
}

// PresenceOf returns what lease's holder says of itself; the zero Presence if it says nothing, or if what is there is another's.
func PresenceOf(lease *coordinationv1.Lease) Presence {
	p, _ := saidPresence(lease)
	return p
}

// saidPresence is PresenceOf, and whether there is one.
func saidPresence(lease *coordinationv1.Lease) (_ Presence, said bool) {
	p, some := PresenceOn(lease)
	if !some || p.Holder != holderOf(lease) {
		return Presence{}, false
	}
	return p, true
}

// PredecessorOf is what the last holder left on a Lease that is free, also when a candidate was named since who has not
// written; of a Lease that is held, what its holder says.
func PredecessorOf(lease *coordinationv1.Lease) Presence {
	p, some := PresenceOn(lease)
	if some && (p.Holder == "" && lease.Spec.Strategy != nil || p.Holder == holderOf(lease)) {
		return p
	}
	return Presence{}
}

// PresenceOn is the presence on an object, whomever it belongs to.
func PresenceOn(object metav1.Object) (p Presence, some bool) {
	if object == (*coordinationv1.Lease)(nil) {
		return Presence{}, false
	}
	text, ok := object.GetAnnotations()[PresenceAnnotation]
	if !ok {
		return Presence{}, false
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return Presence{}, false
	}
	return p, true
}

// WriteTo puts p on an object, in place of whatever presence was there. It reports whether that has changed anything.
func (p Presence) WriteTo(object metav1.Object) (changed bool) {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // a struct of strings
	}
	annotations := object.GetAnnotations()
	before := annotations[PresenceAnnotation]
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[PresenceAnnotation] = string(text)
	object.SetAnnotations(annotations)
	return string(text) != before
}
