package lease

import (
	"encoding/json"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PresenceAnnotation is the annotation in which a holder describes itself (Presence): on its Lease, on its
// LeaseCandidate, and on the Lease that stands for its life.
const PresenceAnnotation = "regent.dev/presence"

// The values of Presence.Fencing. Fenced: the storage refuses the holder's writes after its term.
const (
	Fenced   = "fenced"
	Unfenced = "unfenced"
)

// OnRefusal is the value of Presence.Succession of a holder that allows it.
const OnRefusal = "on-refusal"

// Contact says how to reach a process, and how to recognise it: see election.Contact.
type Contact struct {
	Address string `json:"address,omitempty"`
	Key     string `json:"key,omitempty"`
}

// Presence is what a holder says of itself to other replicas, as JSON.
//
// It names the holder identity to which it belongs. Others may take the lease with a patch or with client-go's lock,
// and leave the annotation as it is. It then describes somebody else.
type Presence struct {
	Holder string `json:"holder"`
	// Process is the uuid of the holder's process. BootID identifies the boot of the machine on which that process
	// runs.
	Process string `json:"process,omitempty"`
	// File identifies the lock file of the process, and distinguishes it from a copy.
	File   string `json:"file,omitempty"`
	BootID string `json:"bootID,omitempty"`
	// Replica is the name of the holder's replica, and Instance that of its process; empty if it runs an older
	// version, which gives each process a Replica of its own.
	Replica  string `json:"replica,omitempty"`
	Instance string `json:"instance,omitempty"`
	// URL is where others reach the holder's process; empty if it does not say.
	URL string `json:"url,omitempty"`
	// Fencing says whether the holder's writes are fenced.
	Fencing string `json:"mode,omitempty"`
	// Succession is OnRefusal if the holder allows others to succeed it without a fence when its address refuses
	// connections. Empty: it does not.
	Succession string `json:"succession,omitempty"`
	// ElectionMode is the mode in which the lease is held. A Lease without a holder keeps it.
	ElectionMode ModeName `json:"electionMode,omitempty"`
	// Election is the name of the election for whose leases a process is present. Only the Lease of a presence has
	// it. Weight is how large a share of them the process wants, beside others; 0 means 1. Ranges is how many it
	// wants there to be.
	Election string `json:"election,omitempty"`
	Weight   int    `json:"weight,omitempty"`
	Ranges   int    `json:"ranges,omitempty"`
	// Owner is the uid of the object that stands for the holder's life, which is an owner of the Lease. Life is
	// that object's name if it is a Lease that the holder made. In mode by-presence that is the Lease of its
	// presence, which has the same Holder.
	Owner types.UID `json:"owner,omitempty"`
	Life  string    `json:"life,omitempty"`
	// Contact says how to reach the holder's process without the Lease.
	Contact Contact `json:"probe,omitzero"`
	// Suspicions counts the terms, up to this one, that have begun on a suspicion since the last calm term.
	// PresumedDead is the holder because of whose apparent death this term began. If that process turns out to be
	// alive, the death counts as a suspicion, too.
	Suspicions   int    `json:"suspicions,omitempty"`
	PresumedDead string `json:"presumedDead,omitempty"`
	// Priority is the holder's priority. StandbyPriority is the highest one among its standbys of the same mode, if
	// that is higher. Alone says that the holder had no standbys of its mode. On a Lease without a holder these
	// describe the moment when the last holder released it. Alone is written only by a holder whose process stops.
	Priority        int32 `json:"priority,omitempty"`
	StandbyPriority int32 `json:"standbyPriority,omitempty"`
	Alone           bool  `json:"alone,omitempty"`
	// LastStepDown says why a holder last gave the lease up. Later holders keep it.
	LastStepDown string `json:"lastStepDown,omitempty"`
	// FailedParts names the parts of its work because of which the last holder gave the lease up. Only a Lease
	// without a holder has them; the next holder removes them.
	FailedParts []string `json:"failedParts,omitempty"`
	// Failed says that the last holder gave the lease up because of its own work. Preferred is the replica that
	// should hold the lease next. Only a Lease without a holder has them.
	Failed    bool   `json:"failed,omitempty"`
	Preferred string `json:"preferred,omitempty"`
	// Last is the term that has ended. Its Reason is empty if LastStepDown says it. Only a Lease without a holder
	// has it.
	Last *Past `json:"last,omitempty"`
}

// PresenceOf returns what the holder of lease says of itself. It is zero if the holder says nothing, or if the
// annotation belongs to another holder.
func PresenceOf(lease *coordinationv1.Lease) Presence {
	p, _ := saidPresence(lease)
	return p
}

// saidPresence returns what PresenceOf does, and whether the holder says anything.
func saidPresence(lease *coordinationv1.Lease) (_ Presence, ok bool) {
	p, some := PresenceOn(lease)
	return p.saidBy(lease, some)
}

// saidBy returns p, which is on the Lease if some is true, and whether the holder has said it.
func (p Presence) saidBy(lease *coordinationv1.Lease, some bool) (_ Presence, ok bool) {
	if !some || p.Holder != holderOf(lease) {
		return Presence{}, false
	}
	return p, true
}

// PredecessorOf returns what the last holder has left on a free Lease, even if a candidate was named since that has not
// written yet. If the Lease is held, it returns what its holder says of itself.
func PredecessorOf(lease *coordinationv1.Lease) Presence {
	p, some := PresenceOn(lease)
	return p.leftOn(lease, some)
}

// leftOn returns p, which is on the Lease if some is true, if it is what PredecessorOf returns.
func (p Presence) leftOn(lease *coordinationv1.Lease, some bool) Presence {
	if some && (p.Holder == "" && lease.Spec.Strategy != nil || p.Holder == holderOf(lease)) {
		return p
	}
	return Presence{}
}

// PresenceOn returns the presence on an object, whichever holder it belongs to, and whether there is one.
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

// WriteTo writes p on an object, in place of any other presence. It reports whether that has changed the annotation.
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
