package etcdfence

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/election/fence"
)

// errNoLeases is the error of a server that stores no Leases.
var errNoLeases = errors.New("this server stores no leases: it cannot check fencing tokens")

// errUnreadable gives no details of a Lease, because the sender may not be allowed to get it.
var errUnreadable = apierrors.NewInternalError(errors.New("the Lease of the fencing token could not be checked: the server's log says why"))

// discloseKey is the context key of the function that says who may be told about a Lease.
type discloseKey struct{}

// WithDisclosure returns a context in which the refusal of a write says what the token's Lease shows, if may allows it.
// So nobody learns about a Lease that they may not get. The guard itself has no authorizer.
func WithDisclosure(ctx context.Context, may func(context.Context, fence.Token) bool) context.Context {
	return context.WithValue(ctx, discloseKey{}, may)
}

// RefuseMissing returns the error for a write that must carry a token and has none. advice says what its sender can do,
// and may be empty.
func RefuseMissing(user, advice string) error {
	refusals.WithLabelValues(causeMissing).Inc()
	text := fmt.Sprintf("a write by %s must carry the %s of its term, and this one has none", user, fence.Header)
	if advice != "" {
		text += ": " + advice
	}
	return fence.NewRefusal(text, metav1.StatusCause{Type: fence.MissingToken, Message: "no " + fence.Header})
}

// refuse returns the error for a write whose Lease does not show the token's term.
func refuse(ctx context.Context, presented, shown fence.Token) error {
	cause := causeDeposed
	current := fmt.Sprintf("held by %q in epoch %d (uid %s)", shown.Holder, shown.Epoch, shown.UID)
	switch {
	case shown.IsZero():
		cause, current = causeDeleted, "deleted"
	case shown.UID != presented.UID:
		cause = causeDeleted
	case shown.Holder == "":
		cause, current = causeReleased, fmt.Sprintf("held by nobody since epoch %d (uid %s)", shown.Epoch, shown.UID)
	}
	refusals.WithLabelValues(cause).Inc()
	const advice = "the write was refused, as every later one of this term will be: stop its work"
	may, _ := ctx.Value(discloseKey{}).(func(context.Context, fence.Token) bool)
	if may == nil || !may(ctx, presented) {
		return fence.NewRefusal("the fencing token is of a term that is over: " + advice)
	}
	was := fmt.Sprintf("held by %q in epoch %d (uid %s)", presented.Holder, presented.Epoch, presented.UID)
	return fence.NewRefusal(
		fmt.Sprintf("the term is over in which Lease %s/%s was %s; the Lease is %s: %s", presented.Namespace, presented.Name, was, current, advice),
		metav1.StatusCause{Type: fence.PresentedTerm, Message: was}, metav1.StatusCause{Type: fence.CurrentTerm, Message: current},
	)
}
