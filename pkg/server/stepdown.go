package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/election"
)

// maxStepDownRequest is the maximum size of the body, in bytes.
const maxStepDownRequest = 4 << 10

// stepDownRequest is the body of POST /election/step-down. The body may be empty.
type stepDownRequest struct {
	// Reason is written on the Lease.
	Reason string `json:"reason"`
	// To is the name of the replica that should lead next. Empty: any replica.
	To string `json:"to"`
}

// stepDownResponse names the term that was asked to end.
type stepDownResponse struct {
	Replica string `json:"replica"`
	Holder  string `json:"holder"`
	Epoch   int64  `json:"epoch"`
}

// stepDown handles POST /election/step-down, for members of system:masters. It asks this replica's term to end, so that another
// replica leads. It answers 409 if this replica does not lead, and 404 if the replica that should lead next is not a standby.
type stepDown struct {
	elector    *election.Elector
	check      checkToken
	serializer runtime.NegotiatedSerializer
	replica    string
	lease      string // namespace/name
}

// ServeHTTP implements http.Handler.
func (s *stepDown) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	response, err := s.ask(req)
	if err != nil {
		responsewriters.ErrorNegotiated(err, s.serializer, schema.GroupVersion{Version: "v1"}, w, req)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(response) // on an error the client has gone; the Lease shows what happened
}

func (s *stepDown) ask(req *http.Request) (stepDownResponse, error) {
	if req.Method != http.MethodPost {
		return stepDownResponse{}, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "step-down"}, req.Method)
	}
	// A leader whose term is over must not end its successor's term.
	if err := s.check.answer(req.Context()); err != nil {
		return stepDownResponse{}, err
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, maxStepDownRequest+1))
	if err != nil {
		return stepDownResponse{}, apierrors.NewBadRequest(fmt.Sprintf("cannot read the body: %v", err))
	}
	if len(body) > maxStepDownRequest {
		return stepDownResponse{}, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the limit is %d bytes", maxStepDownRequest))
	}
	var asked stepDownRequest
	if body = bytes.TrimSpace(body); len(body) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&asked); err != nil {
			return stepDownResponse{}, apierrors.NewBadRequest(fmt.Sprintf(`the body must be empty or {"reason": "...", "to": "<replica>"}: %v`, err))
		}
	}
	reason := "asked"
	if user, ok := apirequest.UserFrom(req.Context()); ok {
		reason += " by " + user.GetName()
	}
	if asked.Reason != "" {
		reason += ": " + strings.Join(strings.FieldsFunc(asked.Reason, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }), " ")
	}
	term, err := s.elector.StepDown(reason, asked.To)
	if errors.Is(err, election.ErrNotLeading) {
		return stepDownResponse{}, newStatus(http.StatusConflict, metav1.StatusReasonConflict, fmt.Sprintf("replica %s does not lead: see who does on lease %s in logical cluster %s",
			s.replica, s.lease, clusters.SystemAdmin))
	}
	if errors.Is(err, election.ErrNoStandby) {
		return stepDownResponse{}, newStatus(http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("replica %s leads on: %v", s.replica, err))
	}
	if err != nil {
		return stepDownResponse{}, apierrors.NewInternalError(err)
	}
	return stepDownResponse{Replica: s.replica, Holder: term.Token().Holder, Epoch: term.Epoch()}, nil
}

// newStatus returns a Status error with a message of its own.
func newStatus(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}
