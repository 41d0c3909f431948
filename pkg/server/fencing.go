package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server/storage"
)

// Fencing says what becomes of a leader's writes without a fencing token. Those with one are always held to it.
type Fencing string

const (
	// FencingEnforce refuses them. It is the default.
	FencingEnforce Fencing = "enforce"
	// FencingWarn lets them through, counts them and logs the first of each kind: for finding controllers that do not
	// write with their term's clients before they are refused.
	FencingWarn Fencing = "warn"
)

// FencingModes are all values of Fencing.
var FencingModes = []Fencing{FencingEnforce, FencingWarn}

// writes are the verbs that change something.
var writes = []string{"create", "update", "patch", "delete", "deletecollection"}

// tokenFilter puts a request's fencing token into its context, for the storage to compare, and sees to it that a term's
// controllers have one. It is inside of authentication and authorization.
type tokenFilter struct {
	// required is whether a leader's writes need a token at all: without leader election there is none. mode says what
	// becomes of those that have none; they are refused unless it is FencingWarn.
	required   bool
	mode       Fencing
	check      checkToken
	authorizer authorizer.Authorizer
	serializer runtime.NegotiatedSerializer

	warned sync.Map   // kinds of writes that were logged
	parsed *lru.Cache // tokens by header: a term sends the same with every request
}

// rememberedHeaders bounds what is remembered of headers, which are at most 2 KiB long.
const rememberedHeaders = 256

func newTokenFilter(election bool, mode Fencing, check checkToken, a authorizer.Authorizer, s runtime.NegotiatedSerializer) *tokenFilter {
	return &tokenFilter{required: election, mode: mode, check: check, authorizer: a, serializer: s, parsed: lru.New(rememberedHeaders)}
}

// parse is fence.Parse.
func (f *tokenFilter) parse(values []string) (fence.Token, error) {
	if len(values) != 1 {
		return fence.Parse(values)
	}
	if token, ok := f.parsed.Get(values[0]); ok {
		return token.(fence.Token), nil
	}
	token, err := fence.Parse(values)
	if err == nil {
		f.parsed.Add(values[0], token)
	}
	return token, err
}

func (f *tokenFilter) wrap(next http.Handler) http.Handler {
	registerFencingMetrics()
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		req, err := f.admit(req)
		if err != nil {
			f.refuse(w, req, err)
			return
		}
		if info, ok := request.RequestInfoFrom(req.Context()); ok && info.Verb == "delete" && !fence.From(req.Context()).IsZero() { //nolint:contextcheck // the request carries its context
			f.serveDeletion(next, w, req)
			return
		}
		next.ServeHTTP(w, req)
	})
}

func (f *tokenFilter) refuse(w http.ResponseWriter, req *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, f.serializer, schema.GroupVersion{Version: "v1"}, w, req)
}

// serveDeletion holds back the answer that there is nothing to delete until the token has been compared: upstream gives it
// before anything gets to storage. That is one read more, of deletions that have found nothing only.
func (f *tokenFilter) serveDeletion(next http.Handler, w http.ResponseWriter, req *http.Request) {
	held := &heldAnswer{ResponseWriter: w, holds: func(status int) bool { return status == http.StatusNotFound }}
	next.ServeHTTP(responsewriter.WrapForHTTP1Or2(held), req)
	if held.is() {
		if err := f.check.answer(req.Context()); err != nil {
			f.refuse(w, req, err)
			return
		}
	}
	held.release()
}

// admit returns the request with its token. It also returns it with an error. A token that cannot be read is refused: the
// sender believes its write to be fenced.
func (f *tokenFilter) admit(req *http.Request) (*http.Request, error) {
	token, err := f.parse(req.Header.Values(fence.Header))
	if err != nil {
		return req, apierrors.NewBadRequest(err.Error())
	}
	info, ok := request.RequestInfoFrom(req.Context())
	changes := ok && info.IsResourceRequest && slices.Contains(writes, info.Verb)
	if token.IsZero() {
		if !changes {
			return req, nil
		}
		return req, f.withoutToken(req.Context(), info)
	}
	ctx := storage.WithDisclosure(fence.With(req.Context(), token), f.mayGet)
	if changes && info.Verb == "deletecollection" { // it may be empty, and then nothing gets to storage
		err = f.check.answer(ctx)
	}
	return req.WithContext(ctx), err
}

// withoutToken refuses a write that must have a token, and counts those of this process's own users that need none.
func (f *tokenFilter) withoutToken(ctx context.Context, info *request.RequestInfo) error {
	user, ok := request.UserFrom(ctx)
	if !ok || user.GetName() != leaderUser && user.GetName() != replicaUser {
		return nil
	}
	if f.required && user.GetName() == leaderUser {
		if f.mode != FencingWarn {
			return storage.RefuseMissing(leaderUser)
		}
		f.warn(ctx, info)
	}
	unfencedWrites.WithLabelValues(user.GetName()).Inc()
	return nil
}

// warn logs the first write of its kind.
func (f *tokenFilter) warn(ctx context.Context, info *request.RequestInfo) {
	kind := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}.String()
	if _, known := f.warned.LoadOrStore(info.Verb+" "+kind, true); !known {
		klog.FromContext(ctx).Error(nil, "A leader's write has no fencing token: find the controller that does not write with the clients of its Deps",
			"verb", info.Verb, "resource", kind, "fencing", f.mode)
	}
}

// mayGet reports whether the user of ctx may get the Lease of a token.
func (f *tokenFilter) mayGet(ctx context.Context, token fence.Token) bool {
	user, ok := request.UserFrom(ctx)
	if !ok {
		return false
	}
	decision, _, err := f.authorizer.Authorize(clusters.With(ctx, token.Cluster), authorizer.AttributesRecord{
		User: user, Verb: "get", APIGroup: "coordination.k8s.io", APIVersion: "v1", Resource: "leases",
		Namespace: token.Namespace, Name: token.Name, ResourceRequest: true,
	})
	return err == nil && decision == authorizer.DecisionAllow
}

// dryRunFence refuses dry-runs of a term that is over, which never get to storage: one that succeeds must not tell a leader
// that its write would.
type dryRunFence struct{ check checkToken }

// checkToken returns an error for which fence.IsFenced holds if the token in ctx is of a term that is over.
type checkToken func(ctx context.Context) error

// answer is that to a write that need not get to storage, and is not held to its token there.
func (c checkToken) answer(ctx context.Context) error {
	err := c(ctx)
	if err == nil || fence.IsFenced(err) {
		return err
	}
	return apierrors.NewInternalError(fmt.Errorf("cannot check the fencing token: %w", err))
}

// Handles implements admission.Interface.
func (*dryRunFence) Handles(admission.Operation) bool { return true }

// Validate implements admission.ValidationInterface.
func (d *dryRunFence) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !a.IsDryRun() {
		return nil
	}
	return d.check.answer(ctx)
}

var unfencedWrites = metrics.NewCounterVec(&metrics.CounterOpts{
	Name: "regent_fencing_unfenced_writes_total", StabilityLevel: metrics.ALPHA,
	Help: "Writes of this replica's own users without a fencing token. Those of " + replicaUser + " have no term and are exempt; those of " +
		leaderUser + " are let through without leader election, or by --fencing=warn.",
}, []string{"user"})

var registerFencingMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(unfencedWrites)
	for _, user := range []string{leaderUser, replicaUser} {
		unfencedWrites.WithLabelValues(user).Add(0)
	}
})

var _ admission.ValidationInterface = (*dryRunFence)(nil)
