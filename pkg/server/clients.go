package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/cert"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// wrapTransport puts something before a transport, as rest.Config.Wrap does. It may be nil.
type wrapTransport func(http.RoundTripper) http.RoundTripper

// loopback reaches this server from within its process, as one in-process user, over connections of its own. client-go
// would share connections between all clients with equal TLS settings; then one user's traffic, or one term's end,
// could hold up another's renewals.
type loopback struct {
	config *rest.Config
	http   *http.Client
	door   *door
}

// newLoopback returns a loopback for the user of token; its requests go to the logical cluster in their contexts. host
// is the server's own loopback configuration.
func newLoopback(host *rest.Config, token string) (*loopback, error) {
	return newLoopbackAt(host, token, host.Host, clusters.Transport)
}

// newLoopbackIn returns a loopback whose every request goes to one logical cluster.
func newLoopbackIn(host *rest.Config, token string, cluster string) (*loopback, error) {
	at, err := url.JoinPath(host.Host, "clusters", cluster)
	if err != nil {
		return nil, fmt.Errorf("cannot make the loopback URL of cluster %s: %w", cluster, err)
	}
	return newLoopbackAt(host, token, at, func(next http.RoundTripper) http.RoundTripper { return next })
}

func newLoopbackAt(host *rest.Config, token, at string, wrap func(http.RoundTripper) http.RoundTripper) (*loopback, error) {
	tlsConfig, err := trustingItself(host)
	if err != nil {
		return nil, err
	}
	way := &door{next: &http.Transport{
		DialContext:         host.Dial,
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 25,
	}}
	return &loopback{
		// No rate limit: what is fair among controllers is theirs to settle, and a queue in the client would delay
		// the urgent behind the many.
		// No warnings either: that an API is a beta is nothing an operator could act on.
		config: &rest.Config{Host: at, QPS: -1, UserAgent: rest.DefaultKubernetesUserAgent(), WarningHandler: rest.NoWarnings{}},
		http:   &http.Client{Transport: wrap(transport.NewBearerAuthRoundTripper(token, way))},
		door:   way,
	}, nil
}

// errNotThisProcess is the error of a connection that does not lead back to this process.
var errNotThisProcess = errors.New("what answers on the loopback is not this process")

// trustingItself returns a TLS configuration that trusts the certificate which this process made for its loopback, and
// nothing else. By the clock the certificate is good from an hour before the process's start, for three years: a clock that
// was ahead then and is set back would let no term make a connection.
func trustingItself(host *rest.Config) (*tls.Config, error) {
	made, err := cert.ParseCertsPEM(host.CAData)
	if err != nil {
		return nil, fmt.Errorf("the loopback's certificate is not usable: %w", err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: host.ServerName,
		// No authority vouches for a key that lives as long as the process: the check below is the whole of it.
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection pins the certificate
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 || !state.PeerCertificates[0].Equal(made[0]) {
				return errNotThisProcess
			}
			return nil
		},
	}, nil
}

// through puts a transport around all requests; nil: none. Call it before clients.
func (l *loopback) through(wrap wrapTransport) {
	if wrap != nil {
		l.http.Transport = wrap(l.http.Transport)
	}
}

// close closes the idle connections, and lets no request begin any more: whoever kept a client of a term that has ended
// can do no harm with it. Requests still in flight end with their contexts.
func (l *loopback) close() {
	l.door.closed.Store(true)
	l.door.next.CloseIdleConnections()
}

// door is a transport that can be closed.
type door struct {
	next   *http.Transport
	closed atomic.Bool
}

var errClosed = errors.New("this client belongs to a term that has ended, or to a server that stops: make no request with it any more")

// RoundTrip fails once the door is closed.
func (d *door) RoundTrip(req *http.Request) (*http.Response, error) {
	if d.closed.Load() {
		return nil, errClosed
	}
	return d.next.RoundTrip(req)
}

// clients returns all clients that controllers get.
func (l *loopback) clients() (controllers.Clients, error) {
	kube, err := kubernetes.NewForConfigAndClient(inProtobuf(l.config), l.http)
	if err != nil {
		return controllers.Clients{}, fmt.Errorf("cannot make the typed client: %w", err)
	}
	dyn, err := dynamic.NewForConfigAndClient(dynamic.ConfigFor(l.config), l.http)
	if err != nil {
		return controllers.Clients{}, fmt.Errorf("cannot make the dynamic client: %w", err)
	}
	meta, err := metadata.NewForConfigAndClient(metadata.ConfigFor(l.config), l.http)
	if err != nil {
		return controllers.Clients{}, fmt.Errorf("cannot make the metadata client: %w", err)
	}
	tenancy, err := l.rest(tenancyv1alpha1.SchemeGroupVersion)
	if err != nil {
		return controllers.Clients{}, err
	}
	core, err := l.rest(corev1alpha1.SchemeGroupVersion)
	if err != nil {
		return controllers.Clients{}, err
	}
	return controllers.Clients{
		Kube:     kube,
		Dynamic:  dyn,
		Metadata: meta,
		Workspaces: gentype.NewClientWithList("workspaces", tenancy, clientParameters, "",
			func() *tenancyv1alpha1.Workspace { return &tenancyv1alpha1.Workspace{} },
			func() *tenancyv1alpha1.WorkspaceList { return &tenancyv1alpha1.WorkspaceList{} }),
		LogicalClusters: gentype.NewClientWithList("logicalclusters", core, clientParameters, "",
			func() *corev1alpha1.LogicalCluster { return &corev1alpha1.LogicalCluster{} },
			func() *corev1alpha1.LogicalClusterList { return &corev1alpha1.LogicalClusterList{} }),
	}, nil
}

// inProtobuf is what the clients of Kubernetes' own types speak: both sides need less time for it than for JSON.
func inProtobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON // an error may come as text
	return config
}

// rest returns a client for a group version of kcp's. Those have no protobuf encoding.
func (l *loopback) rest(gv schema.GroupVersion) (rest.Interface, error) {
	config := rest.CopyConfig(l.config)
	config.GroupVersion = &gv
	config.APIPath = "/apis"
	config.NegotiatedSerializer = clientCodecs.WithoutConversion()
	client, err := rest.RESTClientForConfigAndClient(config, l.http)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for %s: %w", gv, err)
	}
	return client, nil
}

var (
	clientScheme     = newClientScheme()
	clientCodecs     = serializer.NewCodecFactory(clientScheme)
	clientParameters = runtime.NewParameterCodec(clientScheme)
)

func newClientScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	utilruntime.Must(tenancyv1alpha1.AddToScheme(scheme))
	utilruntime.Must(corev1alpha1.AddToScheme(scheme))
	return scheme
}
