package election

import (
	"encoding/json"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// presenceAnnotation is the one annotation the elector writes on its Lease, and on its LeaseCandidate.
const presenceAnnotation = "regent.dev/presence"

// The modes of holders: whether the storage checks their writes against their term.
const (
	modeFenced   = "fenced"
	modeUnfenced = "unfenced"
)

// presence is what a holder tells its peers about itself, as JSON.
//
// It names the holder identity it belongs to: others may take the lease with a patch or a stock lock and leave the
// annotation standing, and what it then says is about somebody else.
type presence struct {
	Holder string `json:"holder"`
	// Process is the uuid of the holder's process, BootID the boot of the machine it runs on: see replica.
	Process string `json:"process,omitempty"`
	// File tells the process's file from a copy of it.
	File   string `json:"file,omitempty"`
	BootID string `json:"bootID,omitempty"`
	// Replica is what the holder's process calls itself.
	Replica string `json:"replica,omitempty"`
	// Mode says how the holder's writes are fenced.
	Mode string `json:"mode,omitempty"`
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

// presenceOf returns the presence on lease; the zero presence if there is none that belongs to its holder.
func presenceOf(lease *coordinationv1.Lease) presence {
	p, _ := saidPresence(lease)
	return p
}

// saidPresence is presenceOf, and whether there is one.
func saidPresence(lease *coordinationv1.Lease) (_ presence, said bool) {
	p := presenceOn(lease)
	if p == nil || p.Holder != holderOf(lease) {
		return presence{}, false
	}
	return *p, true
}

// predecessorOf is what the last holder left on a Lease that is free, also when a candidate was named since who has not
// written.
func predecessorOf(lease *coordinationv1.Lease) presence {
	if p := presenceOn(lease); p != nil && (p.Holder == "" && lease.Spec.Strategy != nil || p.Holder == holderOf(lease)) {
		return *p
	}
	return presence{}
}

// presenceOn is the presence on lease, whomever it belongs to; nil if there is none.
func presenceOn(lease *coordinationv1.Lease) *presence {
	if lease == nil {
		return nil
	}
	return rawPresence(lease)
}

// rawPresence is the presence on an object, whomever it belongs to; nil if there is none.
func rawPresence(object metav1.Object) *presence {
	text, ok := object.GetAnnotations()[presenceAnnotation]
	if !ok {
		return nil
	}
	var p presence
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return nil
	}
	return &p
}

// write puts p on an object, in place of whatever presence was there.
func (p presence) write(object metav1.Object) {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // a struct of strings
	}
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[presenceAnnotation] = string(text)
	object.SetAnnotations(annotations)
}
