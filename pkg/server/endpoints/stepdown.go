package endpoints

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/server/edge"
	"github.com/regent-project/regent/pkg/server/survey"
)

// maxStepDownRequest is the maximum size of the body, in bytes.
const maxStepDownRequest = 4 << 10

// stepDownRequest is the body of POST /election/step-down. The body may be empty.
type stepDownRequest struct {
	// Reason is written on the Lease.
	Reason string `json:"reason"`
	// To is the name of the replica that should lead next. Empty: any replica.
	To string `json:"to"`
	// epoch is that of the term that is to end; 0: whichever goes on. It is in the query, which older versions take
	// for nothing.
	epoch int64
	// index is the range whose term is to end. It is in the query, too.
	index int
}

// epochParameter names, in a query, the epoch of the term that is to end, and rangeParameter the range.
const (
	epochParameter = "epoch"
	rangeParameter = "range"
)

// StepDownResponse names the term that was asked to end.
type StepDownResponse struct {
	Replica string `json:"replica"`
	Holder  string `json:"holder"`
	Epoch   int64  `json:"epoch"`
	// GoesOn: the term was not asked to end, because it is that of the replica that should lead next.
	GoesOn bool `json:"goesOn,omitempty"`
}

// stepDown handles POST /election/step-down, for members of system:masters, and for whom a ClusterRoleBinding in
// system:admin allows it. It asks this replica's term to end, so that another replica leads. It answers 409 if this
// replica does not lead, and 404 if the replica that should lead next is not a standby. If that replica leads already,
// nothing happens: who asks twice, or with a name from before, has what they want. With ?shard=<this shard> the leader
// is asked, whoever it is: see passOn. With ?epoch=<number> only that term ends: who asks twice, or has looked at what
// is over by now, gets 409. In a shard with several ranges ?range=<number> says which one: the range's leader is asked.
type stepDown struct {
	leadership     Leadership
	check          edge.CheckToken
	survey         *survey.Survey
	serializer     runtime.NegotiatedSerializer
	shard, replica string
	lease          string // namespace/name
}

// ServeHTTP implements http.Handler.
func (s *stepDown) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	response, err := s.ask(req)
	answerJSON(w, req, s.serializer, response, err) // if the client has gone, the Lease shows what happened
}

func (s *stepDown) ask(req *http.Request) (StepDownResponse, error) {
	if req.Method != http.MethodPost {
		return StepDownResponse{}, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "step-down"}, req.Method)
	}
	// A leader whose term is over must not end its successor's term.
	if err := s.check.Answer(req.Context()); err != nil {
		return StepDownResponse{}, err
	}
	shard := req.URL.Query().Get(shardParameter)
	if shard != "" && shard != s.shard {
		return StepDownResponse{}, newStatus(http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf(
			"this is a replica of shard %s, and shards cannot act on each other: ask a replica of shard %s, or use regent ui or regent step-down --shard=%s", s.shard, shard, shard))
	}
	wish, err := readStepDown(req)
	if err != nil {
		return StepDownResponse{}, err
	}
	if wish.index, err = s.rangeOf(req); err != nil {
		return StepDownResponse{}, err
	}
	response, err := s.askHere(req, wish)
	if !errors.Is(err, election.ErrNotLeading) {
		return response, err
	}
	if shard == "" {
		return StepDownResponse{}, newConflict("replica %s does not lead: see who does on lease %s in logical cluster %s, or ask with ?%s=%s", s.replica, s.lease, clusters.SystemAdmin, shardParameter, s.shard)
	}
	return s.passOn(req, wish)
}

// rangeOf returns which range a request is about.
func (s *stepDown) rangeOf(req *http.Request) (index int, err error) {
	number, asked := s.leadership.Status().Number, req.URL.Query().Get(rangeParameter)
	if asked == "" && number <= 1 {
		return 0, nil
	}
	index, err = strconv.Atoi(asked)
	if err != nil || index < 0 || index >= max(number, 1) {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("shard %s has %d ranges, each with a leader: say which one is meant by ?%s=<0 to %d>, as regent step-down --range does", s.shard, number, rangeParameter, number-1))
	}
	return index, nil
}

// readStepDown returns what a request asks for.
func readStepDown(req *http.Request) (wish stepDownRequest, err error) {
	if epoch := req.URL.Query().Get(epochParameter); epoch != "" {
		if wish.epoch, err = strconv.ParseInt(epoch, 10, 64); err != nil {
			return wish, apierrors.NewBadRequest(fmt.Sprintf("%s %q is no number", epochParameter, epoch))
		}
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, maxStepDownRequest+1))
	if err != nil {
		return wish, apierrors.NewBadRequest(fmt.Sprintf("cannot read the body: %v", err))
	}
	if len(body) > maxStepDownRequest {
		return wish, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the limit is %d bytes", maxStepDownRequest))
	}
	if body = bytes.TrimSpace(body); len(body) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&wish); err != nil {
			return wish, apierrors.NewBadRequest(fmt.Sprintf(`the body must be empty or {"reason": "...", "to": "<replica>"}: %v`, err))
		}
	}
	return wish, nil
}

// askHere asks the term of this replica to end. It returns ErrNotLeading if there is none.
func (s *stepDown) askHere(req *http.Request, wish stepDownRequest) (StepDownResponse, error) {
	reason := "asked"
	if user, ok := apirequest.UserFrom(req.Context()); ok {
		reason += " by " + user.GetName()
	}
	if wish.Reason != "" {
		reason += ": " + strings.Join(strings.FieldsFunc(wish.Reason, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }), " ")
	}
	if now := StatusOf(s.leadership, wish.index); wish.epoch != 0 && wish.epoch != now.Epoch && now.Leader == s.replica {
		return StepDownResponse{}, newConflict("the term of epoch %d is over: replica %s leads in epoch %d", wish.epoch, s.replica, now.Epoch)
	}
	term, err := s.leadership.StepDown(wish.index, reason, wish.To)
	switch {
	case errors.Is(err, election.ErrNotLeading):
		return StepDownResponse{}, err
	case errors.Is(err, election.ErrLeadsAlready):
		return StepDownResponse{Replica: s.replica, Holder: term.Token().Holder, Epoch: term.Epoch(), GoesOn: true}, nil
	case errors.Is(err, election.ErrNoStandby):
		return StepDownResponse{}, newStatus(http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("replica %s leads on: %v", s.replica, err))
	case err != nil:
		return StepDownResponse{}, apierrors.NewInternalError(err)
	}
	return StepDownResponse{Replica: s.replica, Holder: term.Token().Holder, Epoch: term.Epoch()}, nil
}

func newConflict(format string, args ...any) error {
	return newStatus(http.StatusConflict, metav1.StatusReasonConflict, fmt.Sprintf(format, args...))
}

// newStatus returns a Status error with a message of its own.
func newStatus(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}
