package ranges

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// numberAnnotation is the annotation of the election's Lease that has its number, as JSON.
const numberAnnotation = "regent.dev/ranges"

// nobody is the holder of the election's Lease while there are several ranges. No process has that identity, and the
// lease lasts for ever, so whoever knows one range only waits.
const nobody = "ranges"

// number is how many ranges an election has.
type number struct {
	Ranges int `json:"ranges"`
	// Changer is the Instance of the process that changes it, and Next what it becomes then. No work begins before
	// that has happened, or is given up.
	Next    int    `json:"next,omitempty"`
	Changer string `json:"changer,omitempty"`
}

// numberOn returns the number that the Lease of an election has: one range, if it has none.
func numberOn(of *coordinationv1.Lease) (number, error) {
	if of == nil || ptr.Deref(of.Spec.HolderIdentity, "") != nobody {
		return number{Ranges: 1}, nil
	}
	var n number
	text := of.Annotations[numberAnnotation]
	if err := json.Unmarshal([]byte(text), &n); err != nil || n.Ranges < 2 || n.Ranges > MaxRanges || n.Next < 0 || n.Next > MaxRanges {
		return number{}, fmt.Errorf(`annotation %s of Lease %s is %q, and not how many ranges there are, as in {"ranges":16}: put it right, and meanwhile nobody leads a range anew`,
			numberAnnotation, of.Name, text)
	}
	return n, nil
}

// writeTo returns the Lease of an election with the number. With one range that is a Lease which nobody holds.
func (n number) writeTo(of *coordinationv1.Lease) *coordinationv1.Lease {
	next := of.DeepCopy()
	lease.Strip(next)
	delete(next.Annotations, lease.PresenceAnnotation)
	delete(next.Annotations, numberAnnotation)
	// a late write of the term before is that of another epoch, whoever looks only at that
	epoch := min(ptr.Deref(of.Spec.LeaseTransitions, 0), math.MaxInt32-1) + 1
	if n.Ranges == 1 && n.Next == 0 {
		next.Spec = coordinationv1.LeaseSpec{HolderIdentity: ptr.To(""), LeaseTransitions: &epoch}
		return next
	}
	text, err := json.Marshal(n)
	if err != nil {
		panic(err) // a struct of numbers and a string
	}
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[numberAnnotation] = string(text)
	now := metav1.NewMicroTime(time.Now())
	next.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To(nobody), LeaseDurationSeconds: ptr.To[int32](math.MaxInt32), AcquireTime: &now, RenewTime: &now, LeaseTransitions: &epoch,
	}
	return next
}
