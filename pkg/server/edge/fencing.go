package edge

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

	"github.com/regent-project/regent/pkg/election/etcdfence"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server/access"
	"github.com/regent-project/regent/pkg/server/identity"
)

// Fencing says what happens to writes by the leader's controllers that carry no fencing token. A token that is there is
// always checked.
type Fencing string

const (
	// FencingEnforce refuses such writes. It is the default.
	FencingEnforce Fencing = "enforce"
	// FencingWarn lets such writes through, counts them, and logs the first of each kind. It helps to find
	// controllers that do not use the clients of their term before FencingEnforce refuses their writes.
	FencingWarn Fencing = "warn"
)

// FencingValues are all values of Fencing.
var FencingValues = []Fencing{FencingEnforce, FencingWarn}

// writes are the verbs that change something.
var writes = []string{"create", "update", "patch", "delete", "deletecollection"}

// tokenFilter puts a request's fencing token into its context, where storage finds it, and requires a token from the
// leader's controllers. It runs behind authentication and authorization.
type tokenFilter struct {
	// required says whether the leader's controllers must send a token: false without leader election. fencing says
	// what happens to their writes without one.
	required   bool
	fencing    Fencing
	check      CheckToken
	allowed    access.Allowed
	serializer runtime.NegotiatedSerializer

	warned sync.Map   // kinds of writes that were logged already
	parsed *lru.Cache // tokens by header: a term sends the same header with every request
}

// rememberedHeaders is the size of tokenFilter.parsed. Headers are at most 2 KiB long.
const rememberedHeaders = 256

func newTokenFilter(required bool, fencing Fencing, check CheckToken, allowed access.Allowed, s runtime.NegotiatedSerializer) *tokenFilter {
	return &tokenFilter{required: required, fencing: fencing, check: check, allowed: allowed, serializer: s, parsed: lru.New(rememberedHeaders)}
}

// parse is fence.Parse with a cache.
func (f *tokenFilter) parse(values []string) (fence.Token, error) {
	if len(values) != 1 {
		return fence.Parse(values)
	}
	if token, ok := f.parsed.Get(values[0]); ok {
		return token.(fence.Token), nil
	}
	token, err := fence.Parse(values)
	if err == nil && token.Cluster == "" {
		err = fmt.Errorf("%s names no logical cluster, and here each Lease lives in one: set Cluster of the elector's configuration to it (leader.Config, election.Config)", fence.Header)
	}
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
		if changes(req) && !fence.From(req.Context()).IsZero() { //nolint:contextcheck // the request carries its context
			f.serveChange(next, w, req)
			return
		}
		next.ServeHTTP(w, req)
	})
}

func (f *tokenFilter) refuse(w http.ResponseWriter, req *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, f.serializer, schema.GroupVersion{Version: "v1"}, w, req)
}

// serveChange checks the token before a 404 is answered. Upstream answers it without a call of storage, where the token
// would be checked: to the deletion of what is not there, or to a creation in a namespace that is not. The check costs
// one read, and only changes that find nothing pay it.
func (f *tokenFilter) serveChange(next http.Handler, w http.ResponseWriter, req *http.Request) {
	next.ServeHTTP(responsewriter.WrapForHTTP1Or2(&changeAnswer{ResponseWriter: w, filter: f, req: req}), req)
}

// changeAnswer is the answer to a change with a token. It keeps nothing of it: a refusal is sent in place of what
// follows.
type changeAnswer struct {
	http.ResponseWriter
	filter *tokenFilter
	req    *http.Request

	begun, refused bool
}

// WriteHeader implements http.ResponseWriter.
func (a *changeAnswer) WriteHeader(status int) {
	if a.begun || status < http.StatusOK { // what is informational comes before the answer
		if !a.refused {
			a.ResponseWriter.WriteHeader(status)
		}
		return
	}
	a.begun = true
	if status == http.StatusNotFound {
		if err := a.filter.check.Answer(a.req.Context()); err != nil {
			a.refused = true
			for _, about := range []string{"Content-Type", "Content-Length", "Content-Encoding"} {
				a.Header().Del(about)
			}
			a.filter.refuse(a.ResponseWriter, a.req, err)
			return
		}
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *changeAnswer) Write(body []byte) (int, error) {
	if !a.begun {
		a.WriteHeader(http.StatusOK)
	}
	if a.refused {
		return len(body), nil
	}
	return a.ResponseWriter.Write(body)
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (a *changeAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// admit returns the request with its token in the context, also when it returns an error. A token that cannot be parsed
// is refused: the sender believes that its write is fenced.
func (f *tokenFilter) admit(req *http.Request) (*http.Request, error) {
	token, err := f.parse(req.Header.Values(fence.Header))
	if err != nil {
		return req, apierrors.NewBadRequest(err.Error())
	}
	info, _ := request.RequestInfoFrom(req.Context())
	changes := changes(req)
	if token.IsZero() {
		if !changes {
			return req, nil
		}
		return req, f.withoutToken(req.Context(), info)
	}
	if changes {
		auditToken(req.Context(), token)
	}
	ctx := etcdfence.WithDisclosure(fence.With(req.Context(), token), f.mayGet)
	if changes && info.Verb == "deletecollection" { // an empty collection causes no write in storage
		err = f.check.Answer(ctx)
	}
	return req.WithContext(ctx), err
}

// changes reports whether a request changes something.
func changes(req *http.Request) bool {
	info, ok := request.RequestInfoFrom(req.Context())
	return ok && info.IsResourceRequest && slices.Contains(writes, info.Verb)
}

// withoutToken refuses a write that must carry a token, and counts the other writes of this process's own users.
func (f *tokenFilter) withoutToken(ctx context.Context, info *request.RequestInfo) error {
	user, ok := request.UserFrom(ctx)
	if !ok || user.GetName() != identity.LeaderUser && user.GetName() != identity.ReplicaUser {
		return nil
	}
	if f.required && user.GetName() == identity.LeaderUser {
		if f.fencing != FencingWarn {
			return etcdfence.RefuseMissing(identity.LeaderUser, "a controller must write with the clients of its Deps only")
		}
		f.warn(ctx, info)
	}
	unfencedWrites.WithLabelValues(user.GetName()).Inc()
	return nil
}

// warn logs the first write of each kind.
func (f *tokenFilter) warn(ctx context.Context, info *request.RequestInfo) {
	kind := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}.String()
	if _, known := f.warned.LoadOrStore(info.Verb+" "+kind, true); !known {
		klog.FromContext(ctx).Error(nil, "A leader's write has no fencing token: find the controller that does not write with the clients of its Deps",
			"verb", info.Verb, "resource", kind, "fencing", f.fencing)
	}
}

// mayGet reports whether the user in ctx may get the Lease of a token.
func (f *tokenFilter) mayGet(ctx context.Context, token fence.Token) bool {
	user, ok := request.UserFrom(ctx)
	if !ok {
		return false
	}
	allowed, err := f.allowed(ctx, token.Cluster, authorizer.AttributesRecord{
		User: user, Verb: "get", APIGroup: "coordination.k8s.io", APIVersion: "v1", Resource: "leases",
		Namespace: token.Namespace, Name: token.Name, ResourceRequest: true,
	})
	return err == nil && allowed
}

// DryRunFence refuses dry runs of a term that is over. They never reach storage, and a dry run that succeeds would tell
// the sender that its write would succeed too.
type DryRunFence struct{ Check CheckToken }

// CheckToken returns an error for which fence.IsFenced holds if the token in ctx belongs to a term that is over.
type CheckToken func(ctx context.Context) error

// Answer returns the error for a write that may never reach storage, or nil if its token is valid.
func (c CheckToken) Answer(ctx context.Context) error {
	err := c(ctx)
	if err == nil || fence.IsFenced(err) {
		return err
	}
	return apierrors.NewInternalError(fmt.Errorf("cannot check the fencing token: %w", err))
}

// Handles implements admission.Interface.
func (*DryRunFence) Handles(admission.Operation) bool { return true }

// Validate implements admission.ValidationInterface.
func (d *DryRunFence) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !a.IsDryRun() {
		return nil
	}
	return d.Check.Answer(ctx)
}

var unfencedWrites = metrics.NewCounterVec(&metrics.CounterOpts{
	Name: "regent_fencing_unfenced_writes_total", StabilityLevel: metrics.ALPHA,
	Help: "Writes of this replica's own users without a fencing token. Those of system:regent:replica have no term and are exempt; " +
		"those of system:regent:leader are let through without leader election, or by --fencing=warn.",
}, []string{"user"})

var registerFencingMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(unfencedWrites)
	for _, user := range []string{identity.LeaderUser, identity.ReplicaUser} {
		unfencedWrites.WithLabelValues(user).Add(0)
	}
})

var (
	_ admission.ValidationInterface        = (*DryRunFence)(nil)
	_ responsewriter.UserProvidedDecorator = (*changeAnswer)(nil)
)
