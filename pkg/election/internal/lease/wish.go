package lease

import (
	"encoding/json"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// wishAnnotation is the annotation in which a standby says that it wants to succeed the holder (Wish).
//
// The standby could say so on its stream to the leader's probe, more simply. But anyone who knows the probe's secret
// could then claim to be a replica of any priority, and make each leader step down. A process that may write the Lease
// can take it anyway.
const wishAnnotation = "regent.dev/wish"

// Wish is a standby's wish to succeed the holder, as JSON.
type Wish struct {
	// Holder is the holder to succeed. Later holders ignore the wish.
	Holder string `json:"holder"`
	// Replica, Instance, Mode and Priority are those of the standby. Older versions have no Instance.
	Replica  string   `json:"replica"`
	Instance string   `json:"instance,omitempty"`
	Mode     ModeName `json:"mode"`
	Priority int32    `json:"priority"`
}

// wishOn returns the wish on lease; zero if there is none.
func wishOn(lease *coordinationv1.Lease) (w Wish) {
	if lease == nil {
		return Wish{}
	}
	if err := json.Unmarshal([]byte(lease.Annotations[wishAnnotation]), &w); err != nil {
		return Wish{}
	}
	return w
}

// WriteTo writes w on lease, in place of any other wish.
func (w Wish) WriteTo(lease *coordinationv1.Lease) {
	text, err := json.Marshal(w)
	if err != nil {
		panic(err) // a struct of strings
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[wishAnnotation] = string(text)
}
