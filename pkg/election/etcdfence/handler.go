package etcdfence

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/regent-project/regent/pkg/election/fence"
)

// writes are the verbs that change something.
var writes = []string{"create", "update", "patch", "delete", "deletecollection"}

// Handler puts a request's token into its context, where the stores find it. It belongs inside of authentication,
// authorization and audit:
//
//	config.BuildHandlerChainFunc = func(handler http.Handler, c *server.Config) http.Handler {
//		return server.DefaultBuildHandlerChain(guard.Handler(handler), c)
//	}
//
// A header that is malformed, or that names a Lease which this server cannot have, is answered with 400: its sender
// believes that its write is fenced. An answer that no write stands behind is kept back until the Lease was read: to a
// dry run, to an update that changes nothing, to the deletion of what does not exist. If the term is over, it becomes
// 412.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		token, err := g.admit(req)
		if err != nil {
			answerWith(err, w, req)
			return
		}
		if token.IsZero() {
			next.ServeHTTP(w, req)
			return
		}
		ctx := fence.With(req.Context(), token)
		if g.config.MayGet != nil {
			ctx = WithDisclosure(ctx, g.config.MayGet)
		}
		if !changes(req.Context()) {
			next.ServeHTTP(w, req.WithContext(ctx))
			return
		}
		a := &answer{ResponseWriter: w, guard: g}
		a.req = req.WithContext(withDecided(ctx, &a.decided))
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(a), a.req)
	})
}

// admit returns the token of a request, or the error that it is answered with.
func (g *Guard) admit(req *http.Request) (fence.Token, error) {
	token, err := fence.Parse(req.Header.Values(fence.Header))
	if err != nil {
		return fence.Token{}, apierrors.NewBadRequest(err.Error())
	}
	if !token.IsZero() {
		if _, err := g.key(token); err != nil {
			return fence.Token{}, apierrors.NewBadRequest(fmt.Sprintf("%s header: %v", fence.Header, err))
		}
		return token, nil
	}
	if g.config.MustCarry == nil || !changes(req.Context()) || elects(req.Context()) {
		return token, nil
	}
	if by, ok := request.UserFrom(req.Context()); ok && g.config.MustCarry(by) {
		return token, RefuseMissing(by.GetName(), "write with the clients of the term only")
	}
	return token, nil
}

func changes(ctx context.Context) bool {
	info, ok := request.RequestInfoFrom(ctx)
	return ok && info.IsResourceRequest && slices.Contains(writes, info.Verb)
}

// elects reports whether a request is one with which a process becomes a leader: before that nobody has given it a
// token.
func elects(ctx context.Context) bool {
	info, ok := request.RequestInfoFrom(ctx)
	return ok && info.APIGroup == coordinationv1.GroupName && info.Subresource == "" &&
		(info.Resource == "leases" || info.Resource == "leasecandidates") && slices.Contains([]string{"create", "update", "delete"}, info.Verb)
}

func answerWith(err error, w http.ResponseWriter, req *http.Request) {
	responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Version: "v1"}, w, req)
}

// answer is that to a write with a token.
type answer struct {
	http.ResponseWriter
	guard   *Guard
	req     *http.Request
	decided atomic.Bool // a write of this request was let through

	begun, refused bool
}

// WriteHeader sends the answer, or a refusal in its place.
func (a *answer) WriteHeader(status int) {
	if a.begun || status < 200 { // what is informational comes before the answer
		if !a.refused {
			a.ResponseWriter.WriteHeader(status)
		}
		return
	}
	a.begun = true
	if err := a.check(status); err != nil {
		a.refused = true
		for _, about := range []string{"Content-Type", "Content-Length", "Content-Encoding", "Location"} {
			a.Header().Del(about)
		}
		answerWith(err, a.ResponseWriter, a.req)
		return
	}
	a.ResponseWriter.WriteHeader(status)
}

// check returns the error that takes the place of an answer: to a leader it would say that its term goes on.
func (a *answer) check(status int) error {
	says := status < 300 || status == http.StatusNotFound || status == http.StatusConflict
	if !says || a.decided.Load() {
		return nil
	}
	err := a.guard.Check(a.req.Context())
	if err == nil || fence.IsFenced(err) {
		return err
	}
	return apierrors.NewInternalError(fmt.Errorf("cannot check the fencing token: %w", err))
}

// Write implements http.ResponseWriter.
func (a *answer) Write(body []byte) (int, error) {
	if !a.begun {
		a.WriteHeader(http.StatusOK)
	}
	if a.refused {
		return len(body), nil
	}
	return a.ResponseWriter.Write(body)
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

var _ responsewriter.UserProvidedDecorator = (*answer)(nil)
