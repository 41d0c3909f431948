package fence

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reason is the reason in the Status of a refusal. Its code is 412. With 409 clients would read the object again and
// retry, but a writer whose term is over must not retry.
const Reason metav1.StatusReason = "LeaderFenced"

// The types of the causes in the details of a refusal.
const (
	// PresentedTerm is the term to which the write belongs. CurrentTerm is what the Lease shows. Only users who may
	// get the Lease see them.
	PresentedTerm metav1.CauseType = "PresentedTerm"
	CurrentTerm   metav1.CauseType = "CurrentTerm"
	// MissingToken: the writer must send a token, and has sent none.
	MissingToken metav1.CauseType = "MissingToken"
)

// IsFenced reports whether err, the error of a write, says that the server refused the write because its term is over,
// or because it carries no token but must. The write was not made, and will not be made. Stop the work of the term.
func IsFenced(err error) bool { return apierrors.ReasonForError(err) == Reason }

// NewRefusal returns an error for which IsFenced returns true.
func NewRefusal(message string, causes ...metav1.StatusCause) error {
	status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusPreconditionFailed, Reason: Reason, Message: message}
	if len(causes) > 0 {
		status.Details = &metav1.StatusDetails{Causes: causes}
	}
	return &apierrors.StatusError{ErrStatus: status}
}
