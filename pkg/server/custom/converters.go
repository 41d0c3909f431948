package custom

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"golang.org/x/time/rate"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/webhooks"
)

// converters call conversion webhooks. Tenants say where these are, so nothing is sent with a call that is a secret, no
// proxy and no redirect is followed, and nothing is called at an address that the operator does not allow.
//
// Upstream's calls end only when the webhook answers, or in 30 s. These end with the request that needs them, and when
// the server closes.
type converters struct {
	networks webhooks.Networks
	lanes    lanes
	callTime time.Duration // the constant, except in tests
	logged   *rate.Limiter // of failures: tenants decide how many there are

	closing context.Context //nolint:containedctx // all calls end with it
	end     context.CancelFunc

	mu          sync.Mutex
	connections map[*connection]struct{}
}

// quiet leaves out a metric of upstream's. It has a series for each name of a definition and each pair of versions, for
// ever, and tenants make up all of these. apiserver_conversion_webhook_duration_seconds tells the same of all webhooks
// together.
var quiet = sync.OnceFunc(func() { metrics.SetDisabledMetrics([]string{"apiserver_crd_conversion_webhook_duration_seconds"}) })

func newConverters(networks webhooks.Networks) *converters {
	quiet()
	out := &converters{networks: networks, lanes: lanes{pause: pause}, callTime: callTime, logged: rate.NewLimiter(1, 10), connections: map[*connection]struct{}{}}
	out.closing, out.end = context.WithCancel(context.Background())
	return out
}

// close ends what is under way, and closes connections.
func (c *converters) close() {
	c.end()
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.connections {
		_ = conn.Conn.Close()
	}
}

// converter converts objects of one content by its webhook.
type converter struct {
	*converters
	content *Content
	// definition names no certificates: through knows them.
	definition *apiextensionsv1.CustomResourceDefinition
	storage    string // the version that is stored
	through    *http.Transport
	// impossible is why the webhook cannot be called.
	impossible error
}

var errByService = errors.New("the definition has a conversion webhook by service, and there are no services: give it one by URL")

func hasWebhook(c *Content) bool {
	of := c.spec.Conversion
	return of != nil && of.Strategy == apiextensionsv1.WebhookConverter && of.Webhook != nil && of.Webhook.ClientConfig != nil
}

// of returns the converter of a content, and nil if it has no webhook.
func (c *converters) of(content *Content) *converter {
	if !hasWebhook(content) {
		return nil
	}
	out := &converter{converters: c, content: content, definition: content.definition()}
	hook := content.spec.Conversion.Webhook.DeepCopy()
	roots := &tls.Config{MinVersion: tls.VersionTLS12}
	if given := bytes.TrimSpace(hook.ClientConfig.CABundle); len(given) > 0 {
		roots.RootCAs = x509.NewCertPool()
		if !roots.RootCAs.AppendCertsFromPEM(given) {
			out.impossible = errors.New("caBundle has no certificate in PEM")
		}
	}
	if hook.ClientConfig.URL == nil {
		nowhere := "https://service.invalid"
		hook.ClientConfig.URL, hook.ClientConfig.Service, out.impossible = &nowhere, nil, errByService
	}
	hook.ClientConfig.CABundle = nil
	out.definition.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: hook}
	for _, v := range content.spec.Versions {
		if v.Storage {
			out.storage = v.Name
		}
	}
	out.through = &http.Transport{
		DialContext: c.dial, TLSClientConfig: roots, TLSHandshakeTimeout: c.callTime / 2, MaxIdleConnsPerHost: 4, IdleConnTimeout: 30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
	return out
}

// as has upstream's converters make their calls through this one, and end them with ctx.
func (c *converter) as(ctx context.Context) webhook.AuthenticationInfoResolverWrapper {
	return func(webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		return &webhook.AuthenticationInfoResolverDelegator{ClientConfigForFunc: func(string) (*rest.Config, error) {
			return &rest.Config{Transport: &call{converter: c, ctx: ctx}, UserAgent: "regent-conversion"}, nil
		}}
	}
}

// convert converts objects that are in other versions, in one call.
func (c *converter) convert(ctx context.Context, objects []unstructured.Unstructured, to schema.GroupVersion) ([]unstructured.Unstructured, error) {
	factory, err := conversion.NewCRConverterFactory(nil, c.as(ctx))
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	_, by, err := factory.NewConverter(c.definition)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	list := &unstructured.UnstructuredList{Items: objects}
	list.SetGroupVersionKind(to.WithKind(c.content.names.ListKind))
	out, err := by.ConvertToVersion(list, to)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	converted, ok := out.(*unstructured.UnstructuredList)
	if !ok || len(converted.Items) != len(objects) {
		return nil, apierrors.NewInternalError(fmt.Errorf("a conversion has made a %T of a list", out))
	}
	return converted.Items, nil
}

// call makes the calls of a request.
type call struct {
	*converter
	ctx context.Context //nolint:containedctx // upstream's converters take none
}

// answerBytes bounds an answer: what was sent, twice over, and something for small objects.
func answerBytes(sent int64) int64 { return 2*max(sent, 0) + 256<<10 }

// RoundTrip implements http.RoundTripper. It returns when the answer is read, and nothing of the call runs any more.
func (c *call) RoundTrip(req *http.Request) (*http.Response, error) {
	defer func() {
		if req.Body != nil {
			_ = req.Body.Close()
		}
	}()
	if c.impossible != nil {
		return nil, c.impossible
	}
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	defer context.AfterFunc(c.closing, cancel)()
	cluster, _ := clusters.From(c.ctx)
	leave, err := c.lanes.enter(ctx, lane{cluster, c.content.hash})
	if err != nil {
		return nil, err
	}
	timed, cancel := context.WithTimeout(ctx, c.callTime)
	defer cancel()
	resp, err := c.ask(req.WithContext(timed))
	hung := err != nil && ctx.Err() == nil && timed.Err() != nil
	leave(hung)
	switch {
	case hung:
		return nil, fmt.Errorf("the webhook does not answer within %v", c.callTime)
	case err != nil && c.closing.Err() != nil:
		return nil, errClosing
	case err != nil && ctx.Err() == nil:
		return nil, c.explain(cluster, req.URL.Host, err)
	}
	return resp, err
}

var (
	errNotReached = errors.New("the server cannot reach the webhook: check that the host of its URL has an address in public DNS, that its port answers with TLS, " +
		"and with the operator that --conversion-webhook-networks has the address")
	errNotTrusted = errors.New("the webhook shows a certificate that is not trusted: check that caBundle has its authority, that it names the host of the URL, and that it has not expired")
)

// explain returns what a tenant is told of a failure. A webhook that is not reached is always told of in the same
// words: otherwise whoever makes definitions could ask the operator's DNS which names there are, and see its address
// and those behind them. The operator finds the rest in the log.
func (c *call) explain(cluster logicalcluster.Name, host string, err error) error {
	if bad, ok := errors.AsType[*answerError](err); ok {
		return bad
	}
	if c.logged.Allow() {
		klog.FromContext(c.ctx).Info("A conversion webhook could not be called", "cluster", cluster, "resource", c.definition.Name, "host", host, "err", err)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return errNotTrusted
	}
	return errNotReached
}

// answerError is what is wrong with an answer. The tenant, whose webhook it is, sees it as it is.
type answerError struct{ text string }

func (e *answerError) Error() string { return e.text }

func (c *call) ask(req *http.Request) (*http.Response, error) {
	resp, err := c.through.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 == 3 {
		return nil, &answerError{fmt.Sprintf("the webhook answers %d, and redirects are not followed", resp.StatusCode)}
	}
	most := answerBytes(req.ContentLength)
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > most {
		return nil, &answerError{fmt.Sprintf("the webhook answers more than %d bytes", most)}
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

var errClosing = errors.New("the server stops, and calls no webhooks any more")

// dial opens a connection that close closes.
func (c *converters) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.networks.Dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	out := &connection{Conn: conn, of: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing.Err() != nil {
		_ = conn.Close()
		return nil, errClosing
	}
	c.connections[out] = struct{}{}
	return out, nil
}

// connection is a connection to a webhook.
type connection struct {
	net.Conn
	of *converters
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.connections, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

var _ http.RoundTripper = (*call)(nil)
