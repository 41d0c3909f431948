package lease

import (
	"encoding/json"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// wishAnnotation is what a standby writes on the Lease when it wants to succeed the holder.
//
// It could be said on the probe, with less ado. But whoever knows the probe's secret can call itself a replica of any priority, and
// would make each leader step down. Who may write the Lease can take it anyway.
const wishAnnotation = "regent.dev/wish"

// Wish is a standby's wish to succeed the holder, as JSON.
type Wish struct {
	// Holder is whom it wants to succeed: it is nobody else's business.
	Holder string `json:"holder"`
	// Replica is what the standby calls itself, Mode the one in which it would lead.
	Replica  string `json:"replica"`
	Mode     Mode   `json:"mode"`
	Priority int32  `json:"priority"`
}

// wishOn is the wish on lease; the zero Wish if there is none.
func wishOn(lease *coordinationv1.Lease) (w Wish) {
	if lease == nil {
		return Wish{}
	}
	if err := json.Unmarshal([]byte(lease.Annotations[wishAnnotation]), &w); err != nil {
		return Wish{}
	}
	return w
}

// WriteTo puts w on lease, in place of any wish before.
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
