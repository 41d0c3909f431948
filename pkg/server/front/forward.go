package front

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/server/routing"
)

// forward sends a request to a shard, and its answer to the client. If the shard says that it does not have the logical
// cluster, and mayFollow says so, nothing is answered, and misdirected is true.
func (f *Front) forward(x *exchange, req *http.Request, to *shard, path, client string, mayFollow bool) (misdirected bool) {
	x.shard = to.name
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.Path, r.Out.URL.RawPath = "https", host, path, ""
			r.Out.Host = ""
			r.Out.Header.Del("Origin") // the front's: the shard would take it for another site's
			r.SetXForwarded()
			identify(r.Out.Header, x.who)
		},
		Transport: roundTrip(func(req *http.Request) (*http.Response, error) {
			defer func(began time.Time) { x.wait += time.Since(began) }(time.Now())
			return to.replicas.send(req, maphash.String(clientSeed, client))
		}),
		ModifyResponse: func(resp *http.Response) error {
			if resp.StatusCode < http.StatusOK || resp.StatusCode > maxStatus {
				return fmt.Errorf("its answer has status %d, which is none: another server is at its address, or it is broken", resp.StatusCode)
			}
			if resp.StatusCode == http.StatusMisdirectedRequest && mayFollow {
				return errMisdirected
			}
			if x.who == nil {
				f.tokens.record(client, to.name, resp)
			} else if resp.StatusCode == http.StatusUnauthorized {
				return errNotAccepted
			}
			if resp.StatusCode == http.StatusOK && isWatch(req) {
				resp.Body = f.streams.add(resp.Body)
			}
			return nil
		},
		BufferPool: buffers{},
		ErrorLog:   silent,
		ErrorHandler: func(_ http.ResponseWriter, req *http.Request, err error) {
			if misdirected = errors.Is(err, errMisdirected); misdirected {
				return
			}
			if req.Context().Err() == nil { // otherwise the client has gone
				refuse(x, newNoAnswer(to.name, req.Method, err))
			}
		},
	}
	if isWatch(req) {
		proxy.FlushInterval = -1 // each event at once
	}
	// ReverseProxy would drop what Connection lists, so that a client could take Impersonate-User or Authorization
	// out of a request. It would also pass an upgrade on, which HTTP/2 does not have. Shards ignore both. Whoever
	// asks for a websocket has been refused: see wantsWebsocket.
	req.Header.Del("Connection")
	proxy.ServeHTTP(x, req)
	return misdirected
}

// errWebsocket answers who asks for a websocket. A front speaks HTTP/2 to shards, which has none.
// Without this answer a client would get an ordinary one, in the midst of a handshake.
var errWebsocket = apierrors.NewBadRequest("a front passes no websockets on: watch by an ordinary request with ?watch=true, or open the websocket at the shard itself")

// wantsWebsocket reports whether a request begins a websocket. Any other upgrade may be ignored by whoever does not
// know it.
func wantsWebsocket(req *http.Request) bool {
	has := func(header, word string) bool {
		return strings.Contains(strings.ToLower(strings.Join(req.Header[header], ",")), word)
	}
	return has("Connection", "upgrade") && has("Upgrade", "websocket")
}

// maxStatus is the last status that HTTP has. Another one would be a label of metrics, and net/http panics when it
// shall send it.
const maxStatus = 599

// errNotAccepted says that a shard does not believe the front whom it asks for.
var errNotAccepted = errors.New("it does not accept this front: was the front removed, or does it have an old membership? regent front add makes a new one")

// newNoAnswer returns the error for a request that a shard has not answered.
func newNoAnswer(shard, method string, err error) error {
	message := fmt.Sprintf("shard %s does not answer", shard)
	if wasNotSent(err) || errors.Is(err, errNotAccepted) || readOnly(method) {
		return &noAnswer{routing.NewUnavailable(message), err}
	}
	return &noAnswer{&apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout, Message: message + "; the request may have been carried out",
	}}, err}
}

// noAnswer is the error for a client whose shard does not answer. Its cause has addresses, so only administrators are
// told of it. The front's log has it.
type noAnswer struct {
	error
	cause error
}

// Unwrap is for errors.As: the cause is nobody's answer.
func (n *noAnswer) Unwrap() error { return n.error }

// why returns the cause in one line.
func (n *noAnswer) why() string { return strings.ReplaceAll(n.cause.Error(), "\n", "; ") }

func readOnly(method string) bool { return method == http.MethodGet || method == http.MethodHead }

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// silent is for messages about clients that nobody can act on.
var silent = log.New(io.Discard, "", 0)

// buffers are those through which answers are copied.
type buffers struct{}

const bufferSize = 32 << 10 // bytes, as ReverseProxy's own

var bufferPool = sync.Pool{New: func() any { return new([bufferSize]byte) }}

func (buffers) Get() []byte  { return bufferPool.Get().(*[bufferSize]byte)[:] }
func (buffers) Put(b []byte) { bufferPool.Put((*[bufferSize]byte)(b)) }

var _ httputil.BufferPool = buffers{}
