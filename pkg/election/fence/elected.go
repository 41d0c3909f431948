package fence

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/utils/ptr"
)

// Elected returns a wrapper for rest.Config.Wrap. It is for a process that leads at most once, and whose leader
// election uses the same configuration, as that of a controller-runtime manager does by default:
//
//	config.Wrap(fence.Elected("default", "widgets.example.com"))
//
// The first write of that Lease that succeeds is the one that acquires it. Its answer says which term has begun, and
// every later write carries that term's token, renewals and the release included. The token never changes. So a process
// that loses the Lease, and takes it back without noticing, is refused as any other whose term is over; it cannot renew
// either, and its elector gives up at its renew deadline.
//
// Until the Lease is acquired all writes fail with ErrNoTerm and are not sent, but for those of that Lease and
// creations of others beside it. What has to write without leading needs a configuration of its own. If the answer does
// not name a term, as that of a server without logical clusters unless WithoutClusters is given, all later writes fail
// with the reason.
func Elected(namespace, name string, opts ...Option) func(http.RoundTripper) http.RoundTripper {
	e := &election{collection: "/apis/" + coordinationv1.SchemeGroupVersion.String() + "/namespaces/" + namespace + "/leases", name: name, options: opts}
	return func(next http.RoundTripper) http.RoundTripper {
		return &elected{election: e, next: next, fenced: &transport{next: next, source: e.source}}
	}
}

// election is shared by all clients of a configuration. Its states:
//
//	standing by --the first write of the Lease succeeds--> leading, or unable to say in which term; for good
type election struct {
	collection, name string
	options          []Option
	outcome          atomic.Pointer[outcome] // set once
}

type outcome struct {
	token Token
	err   error
}

func (e *election) source(context.Context) (Token, error) {
	if o := e.outcome.Load(); o != nil {
		return o.token, o.err
	}
	return Token{}, ErrNoTerm
}

// acquires reports whether a request may acquire the Lease. The name of one that is created is in the body only.
func (e *election) acquires(req *http.Request) bool {
	if e.outcome.Load() != nil {
		return false
	}
	switch req.Method {
	case http.MethodPost:
		return strings.HasSuffix(req.URL.Path, e.collection)
	case http.MethodPut, http.MethodPatch:
		return strings.HasSuffix(req.URL.Path, e.collection+"/"+e.name)
	default:
		return false
	}
}

// learn takes the token from the answer to a write that may have acquired the Lease.
func (e *election) learn(answer []byte) {
	obj, kind, err := leases.Decode(answer, nil, nil)
	lease, ok := obj.(*coordinationv1.Lease)
	if err == nil && !ok {
		err = fmt.Errorf("it is a %s", kind.Kind)
	}
	if err != nil {
		e.outcome.CompareAndSwap(nil, &outcome{err: fmt.Errorf("the answer to a write of Lease %s does not say in which term this process leads: %w", e.name, err)})
		return
	}
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	if lease.Name != e.name || holder == "" {
		return // another Lease of the namespace, or nobody leads
	}
	token, err := Acquired(lease, holder, e.options...)
	e.outcome.CompareAndSwap(nil, &outcome{token, err})
}

// leases decodes Leases, as JSON or as protobuf.
var leases = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		panic(err) // the types are upstream's, and none is there before
	}
	return serializer.NewCodecFactory(scheme).UniversalDeserializer()
}()

type elected struct {
	election *election
	next     http.RoundTripper
	fenced   http.RoundTripper
}

// RoundTrip does not change the answer.
func (e *elected) RoundTrip(req *http.Request) (*http.Response, error) {
	if !e.election.acquires(req) {
		return e.fenced.RoundTrip(req)
	}
	resp, err := e.next.RoundTrip(req)
	if err == nil && resp.StatusCode/100 == 2 {
		e.election.learn(peek(resp))
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find the transport whose requests it can cancel.
func (e *elected) WrappedRoundTripper() http.RoundTripper { return e.next }

// peek reads the beginning of an answer, and puts it back.
func peek(resp *http.Response) []byte {
	head, err := io.ReadAll(io.LimitReader(resp.Body, longestAnswer))
	rest := io.Reader(resp.Body)
	if err != nil {
		rest = failing{err}
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), rest), resp.Body}
	return head
}
