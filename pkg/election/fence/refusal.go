package fence

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reason is that of a refusal, whose code is 412. Not 409, for which clients read the object again and retry: whose term
// is over has nothing to retry.
const Reason metav1.StatusReason = "LeaderFenced"

// The causes in the details of a refusal.
const (
	// PresentedTerm is the term to which the write belongs, CurrentTerm what the Lease shows: for those who may get it.
	PresentedTerm metav1.CauseType = "PresentedTerm"
	CurrentTerm   metav1.CauseType = "CurrentTerm"
	// MissingToken: the writer must have a token, and sent none.
	MissingToken metav1.CauseType = "MissingToken"
)

// IsFenced reports whether err, of a write, says that the write was refused because its term is over, or because it
// carries no token and must. It was not and will not be made: stop the term's work.
func IsFenced(err error) bool { return apierrors.ReasonForError(err) == Reason }

// NewRefusal returns an error for which IsFenced holds.
func NewRefusal(message string, causes ...metav1.StatusCause) error {
	status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusPreconditionFailed, Reason: Reason, Message: message}
	if len(causes) > 0 {
		status.Details = &metav1.StatusDetails{Causes: causes}
	}
	return &apierrors.StatusError{ErrStatus: status}
}
