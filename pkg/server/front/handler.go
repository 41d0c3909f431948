package front

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/server/routing"
)

// ServeHTTP implements http.Handler.
func (f *Front) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !f.serving.TryRLock() {
		return // its connection is closed already
	}
	defer f.serving.RUnlock()
	switch req.URL.Path {
	case "/livez", "/healthz":
		_, _ = w.Write([]byte("ok"))
	case "/readyz":
		f.serveReady(w)
	default:
		x := &exchange{ResponseWriter: w, path: req.URL.Path, began: time.Now()}
		f.limitAnswer(x, isWatch(req))
		defer f.finish(x, req)
		f.serve(x, req)
	}
}

// finish counts and logs an exchange. It logs a panic, too: net/http's own message about it goes to silent.
func (f *Front) finish(x *exchange, req *http.Request) {
	if x.count(); f.cfg.AccessLog {
		x.log(req)
	}
	if x.noAnswer != nil && f.noAnswers.Allow() {
		klog.FromContext(req.Context()).Info("A request had no answer: look after the shard, or the way to it", "told", clip(x.noAnswer.Error()), "because", clip(x.noAnswer.why()))
	}
	fault := recover()
	if fault == nil {
		return
	}
	if fault != http.ErrAbortHandler { //nolint:errorlint // net/http compares it so, too
		klog.FromContext(req.Context()).Error(nil, "A request made the front panic: report this fault of the front",
			"method", req.Method, "uri", clip(req.URL.RequestURI()), "panic", fault, "stack", string(debug.Stack()))
	}
	panic(http.ErrAbortHandler) // the client sees that its connection breaks
}

// answerTimeout is how long an answer may take until the client has read it; of a watch, an event. Shards take as long
// by default.
const answerTimeout = 2 * bodyTimeout

// limitAnswer makes writes of the answer fail after some time: a client that reads nothing must not keep a place for
// ever.
func (f *Front) limitAnswer(x *exchange, watch bool) {
	until := time.Now().Add(f.answerTimeout)
	if watch {
		// HTTP/1 has the deadline of the connection's last request
		x.patience, until = f.answerTimeout, time.Time{}
	}
	_ = http.NewResponseController(x.ResponseWriter).SetWriteDeadline(until)
}

// sameOrigin lets no other site write with what a browser shows to the front. Shards cannot tell: they have other names
// than the front.
var sameOrigin = http.NewCrossOriginProtection()

// serve answers a request for which credentials are needed.
func (f *Front) serve(x *exchange, req *http.Request) {
	if err := sameOrigin.Check(req); err != nil {
		refuse(x, apierrors.NewForbidden(schema.GroupResource{}, "", err))
		return
	}
	var err error
	if x.who, err = f.authenticate(req); err == nil && x.who == nil && req.Header.Get("Authorization") == "" {
		err = errors.New("give a client certificate or a token") // strangers do not learn which clusters exist
	}
	if err != nil {
		refuse(x, apierrors.NewUnauthorized(err.Error()))
		return
	}
	if wantsWebsocket(req) {
		refuse(x, errWebsocket)
		return
	}
	client := clientOf(req, x.who)
	leave, limit := f.inflight.enter(f.tokens.account(client, req, x.who), isWatch(req))
	if limit != "" {
		refusals.WithLabelValues(limit).Inc()
		refuse(x, apierrors.NewTooManyRequests("the front has reached its limit of "+limit+": try again, or raise --max-"+limit, 1))
		return
	}
	defer leave()
	if req.URL.Path == metricsPath {
		f.serveMetrics(x, req, client)
		return
	}
	to, path, err := f.target(req, x.who, f.tokens.isAccepted(client))
	if err != nil {
		refuse(x, err)
		return
	}
	if cluster := f.budgetOf(path, client); cluster != "" && !isWatch(req) && !isAdministrator(x.who) {
		leave, ok := f.inflight.enterCluster(cluster)
		if !ok {
			refusals.WithLabelValues(limitCluster).Inc()
			refuse(x, apierrors.NewTooManyRequests("too many requests for this logical cluster are under way: try again", 1))
			return
		}
		defer leave()
	}
	f.follows(x, req, to, path, client)
}

// isAdministrator reports whether a certificate names an administrator.
func isAdministrator(who user.Info) bool {
	return who != nil && slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup)
}

// serveReady says whether the front knows the clusters of all shards, or which it does not know.
func (f *Front) serveReady(w http.ResponseWriter) {
	select {
	case <-f.stopping:
		http.Error(w, "the front stops", http.StatusServiceUnavailable)
		return
	default:
	}
	f.mu.RLock()
	hasList, isRemoved := f.hasList, f.isRemoved
	f.mu.RUnlock()
	if isRemoved {
		http.Error(w, "this front is no member of the installation: stop it, or give it a new membership (regent front add)", http.StatusServiceUnavailable)
		return
	}
	if !hasList {
		http.Error(w, "the root shard has not said yet which shards there are", http.StatusServiceUnavailable)
		return
	}
	if unheard, all := f.unheard(); len(unheard) == all {
		http.Error(w, fmt.Sprintf("no shard is heard: %q", unheard), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok"))
}

// refuse answers a request with an error, always as JSON, which all clients understand: upstream's writer of errors
// would need the types of an API.
func refuse(x *exchange, err error) {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	out := status.Status()
	if found, ok := errors.AsType[*noAnswer](err); ok {
		if x.noAnswer = found; isAdministrator(x.who) {
			out.Message += ": " + found.why()
		}
	}
	out.Message = clip(out.Message)
	out.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		x.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	routing.Explain(x.Header(), x.path, errors.New(out.Message))
	x.Header().Set("Content-Type", "application/json")
	x.WriteHeader(int(out.Code))
	encoder := json.NewEncoder(x)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(out)
}

// maxMessage is how many bytes of what clients and shards say are repeated, in an answer or a log line. Escaped, they
// may be five times as many.
const maxMessage = 4 << 10

func clip(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage], "") + "..."
}

var _ http.Handler = (*Front)(nil)
