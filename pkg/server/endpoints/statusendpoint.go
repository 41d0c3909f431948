package endpoints

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/regent-project/regent/pkg/election/control/supervisor"
	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/pkg/server/survey"
)

// stacksParameter names, in a query for a Replica, the controller of which the stacks are wanted.
const stacksParameter = "stacks"

// shardParameter names, in a query for Terms, another shard.
const shardParameter = "shard"

// description returns what an endpoint answers.
type description func(*http.Request) (any, error)

// termsOf returns the terms of the shard that the query names; empty: this one.
func termsOf(req *http.Request, s *survey.Survey) (status.Terms, error) {
	shard := req.URL.Query().Get(shardParameter)
	terms, err := s.Terms(req.Context(), shard)
	switch {
	case errors.Is(err, survey.ErrUnknown):
		return terms, routing.NewNotFound(err.Error())
	case err != nil:
		return terms, routing.NewUnavailable(err.Error())
	}
	return terms, nil
}

// withStacks returns a copy of a Replica that has the stacks of a controller; empty: of none.
func withStacks(r status.Replica, controller string) (status.Replica, error) {
	if controller == "" {
		return r, nil
	}
	r.Controllers = slices.Clone(r.Controllers)
	for n := range r.Controllers {
		if r.Controllers[n].Name == controller {
			r.Controllers[n].Stacks = supervisor.Stacks(controller)
			return r, nil
		}
	}
	return r, routing.NewNotFound(fmt.Sprintf("replica %s has no controller %q", r.Name, controller))
}

// statusEndpoint answers GET with JSON, for members of system:masters, for whom a ClusterRoleBinding in system:admin
// allows it, and for other replicas as far as they need it (membersGate.mayAsk).
type statusEndpoint struct {
	describe   description
	serializer runtime.NegotiatedSerializer
}

// ServeHTTP implements http.Handler.
func (e *statusEndpoint) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	described, err := e.answer(req)
	answerJSON(w, req, e.serializer, described, err)
}

func (e *statusEndpoint) answer(req *http.Request) (any, error) {
	if req.Method != http.MethodGet {
		return nil, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "status"}, req.Method)
	}
	return e.describe(req)
}

// answerJSON answers with a value, or with a Status that says what the error is.
func answerJSON(w http.ResponseWriter, req *http.Request, serializer runtime.NegotiatedSerializer, value any, err error) {
	var body []byte
	if err == nil {
		if body, err = json.Marshal(value); err != nil {
			err = apierrors.NewInternalError(err)
		}
	}
	answer(w, req, serializer, "application/json", append(body, '\n'), err)
}

// answer answers with a body of a media type, or with a Status that says what the error is.
func answer(w http.ResponseWriter, req *http.Request, serializer runtime.NegotiatedSerializer, mediaType string, body []byte, err error) {
	if err != nil {
		responsewriters.ErrorNegotiated(err, serializer, schema.GroupVersion{Version: "v1"}, w, req)
		return
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(body) // on an error the client has gone
}

var _ http.Handler = (*statusEndpoint)(nil)
