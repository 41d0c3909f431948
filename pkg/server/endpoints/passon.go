package endpoints

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	neturl "net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/transport"

	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/survey"
)

// passOn asks the replica that leads to step down, for the user of a request. This replica has checked that the user
// may. It has no right of its own to ask, and says who the user is: the leader checks the user's rights again
// (memberRequests). What was passed on is not passed on again, because it does not name the shard.
func (s *stepDown) passOn(req *http.Request, asked stepDownRequest) (StepDownResponse, error) {
	leader, url, here := s.survey.Leader()
	if asked.index != 0 {
		now := StatusOf(s.leadership, asked.index)
		leader, url, here = now.Leader, now.LeaderURL, now.Leader == s.replica
	}
	switch {
	case leader == "":
		return StepDownResponse{}, newConflict("nobody is known to lead shard %s now: ask again when somebody does", s.shard)
	case here:
		return StepDownResponse{}, newConflict("the term of replica %s ends already", s.replica)
	}
	onward, err := s.onward(req, url, asked)
	if err != nil {
		return StepDownResponse{}, apierrors.NewInternalError(err)
	}
	code, body, err := s.survey.Send(onward, url)
	if errors.Is(err, survey.ErrUnanswered) {
		return StepDownResponse{}, newStatus(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, fmt.Sprintf("replica %s leads, and does not answer replica %s: %v: see whether another one leads before you ask again", leader, s.replica, err))
	}
	if err == nil {
		var response StepDownResponse
		if response, err = replied(code, body); err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
			return response, err
		}
	}
	return StepDownResponse{}, newStatus(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, fmt.Sprintf("replica %s leads, and could not be asked by replica %s: %v: ask it itself, at %s", leader, s.replica, err, url))
}

// replied returns what the leader has answered. It returns an error that is no Status if the leader refuses this
// replica, not the user.
func replied(code int, body []byte) (response StepDownResponse, err error) {
	if code == http.StatusOK {
		return response, json.Unmarshal(body, &response)
	}
	var refusal metav1.Status
	if json.Unmarshal(body, &refusal) != nil || refusal.Code != int32(code) {
		return response, fmt.Errorf("it answers %d %s", code, http.StatusText(code))
	}
	// this replica has let the user pass: the other one runs an older version, or does not know of it yet
	if code == http.StatusUnauthorized || code == http.StatusForbidden {
		return response, fmt.Errorf("it answers %d: %s", code, refusal.Message)
	}
	return response, &apierrors.StatusError{ErrStatus: refusal}
}

// onward returns the request to the leader.
func (s *stepDown) onward(req *http.Request, url string, asked stepDownRequest) (*http.Request, error) {
	who, ok := apirequest.UserFrom(req.Context())
	if !ok {
		return nil, errors.New("the request has no user")
	}
	body, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	at, query := url+routing.StepDownPath, make(neturl.Values)
	if asked.epoch != 0 {
		query.Set(epochParameter, strconv.FormatInt(asked.epoch, 10))
	}
	if number := s.leadership.Status().Number; number > 1 {
		query.Set(rangeParameter, strconv.Itoa(asked.index))
	}
	if len(query) > 0 {
		at += "?" + query.Encode()
	}
	onward, err := http.NewRequestWithContext(req.Context(), http.MethodPost, at, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	onward.Header.Set("Accept", "application/json")
	onward.Header.Set("Content-Type", "application/json")
	for _, token := range req.Header.Values(fence.Header) {
		onward.Header.Add(fence.Header, token)
	}
	transport.SetAuthProxyHeaders(onward, who.GetName(), who.GetUID(), who.GetGroups(), who.GetExtra())
	return onward, nil
}
