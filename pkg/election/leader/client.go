package leader

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coordinationv1beta1client "k8s.io/client-go/kubernetes/typed/coordination/v1beta1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/regent-project/regent/pkg/election/fence"
)

// clients are those of the election, with connections of their own.
type clients struct {
	leases     *coordinationv1client.CoordinationV1Client
	candidates *coordinationv1beta1client.CoordinationV1beta1Client
	secrets    *corev1client.CoreV1Client
	close      func() // closes their connections
	tokens     bool   // requests carry the tokens of their contexts; set before the first request
}

// newClients returns clients of a copy of config. They share nothing with other clients of it: neither connections nor
// a rate limit. A transport that config brings is used as it is.
func newClients(config *rest.Config) (*clients, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.RateLimiter, config.Timeout = -1, nil, 0 // the Elector bounds each request
	c := &clients{close: func() {}}
	if config.Transport == nil {
		dial := config.Dial
		if dial == nil {
			dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}).DialContext
		}
		dialer := connrotation.NewDialer(dial)
		config.Dial = dialer.DialContext // client-go shares no connections of a configuration that has a dialer
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &impatient{next, dialer.CloseAll} })
		c.close = dialer.CloseAll
	}
	config.Wrap(fence.Transport(func(ctx context.Context) (fence.Token, error) {
		if !c.tokens {
			return fence.Token{}, nil
		}
		return fence.FromContext(ctx)
	}))
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("leader: the rest.Config: %w", err)
	}
	var errs [3]error
	c.leases, errs[0] = coordinationv1client.NewForConfigAndClient(config, transport)
	c.candidates, errs[1] = coordinationv1beta1client.NewForConfigAndClient(config, transport)
	c.secrets, errs[2] = corev1client.NewForConfigAndClient(config, transport)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("leader: the rest.Config: %w", err)
	}
	return c, nil
}

// dialTimeout bounds the making of a connection, in addition to the deadline of each request.
const dialTimeout = 10 * time.Second

// impatient closes all connections when a request got no answer before its deadline. The connection may be a black
// hole, for example when the machine behind an address was replaced, and HTTP/2 would send the next renewals on it,
// too.
type impatient struct {
	next     http.RoundTripper
	closeAll func()
}

// RoundTrip makes the request.
func (i *impatient) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := i.next.RoundTrip(req)
	if err != nil && errors.Is(req.Context().Err(), context.DeadlineExceeded) {
		i.closeAll()
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find the transport whose requests it can cancel.
func (i *impatient) WrappedRoundTripper() http.RoundTripper { return i.next }
