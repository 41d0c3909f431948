package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/etcd"
	"github.com/regent-project/regent/pkg/server/pki"
)

func TestAReplicaServesUntilAskedToStopAndStartsAgainOnItsData(t *testing.T) {
	root := t.TempDir()
	for range 2 {
		r := startReplica(t, config(t, root))
		if got := r.get(t, "/readyz"); got != http.StatusOK {
			t.Errorf("/readyz: %d", got)
		}
		if got := r.get(t, "/clusters/system:admin/apis"); got != http.StatusUnauthorized {
			t.Errorf("/apis without credentials: %d, want 401", got)
		}
		if err := r.stop(t); err != nil {
			t.Errorf("Run returned %v", err)
		}
	}
}

func TestTheKubeconfigReachesTheReplica(t *testing.T) {
	cfg := config(t, t.TempDir())
	r := startReplica(t, cfg)
	defer func() { _ = r.stop(t) }()
	raw, err := clientcmd.LoadFromFile(filepath.Join(cfg.RootDirectory, kubeconfigFile))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"root": "/clusters/root", "system:admin": "/clusters/system:admin"} {
		if got := raw.Clusters[raw.Contexts[name].Cluster].Server; !strings.HasSuffix(got, want) {
			t.Errorf("context %s leads to %s", name, got)
		}
	}
}

func TestARecordOfAnotherShardStopsTheReplica(t *testing.T) {
	root := t.TempDir()
	if err := startReplica(t, config(t, root)).stop(t); err != nil {
		t.Fatal(err)
	}
	cfg := config(t, root)
	cfg.Shard = "another"
	s, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "--shard-name=root") {
		t.Errorf("Run returned %v, want advice about --shard-name", err)
	}
}

func TestATakenPortIsAnErrorOfNew(t *testing.T) {
	cfg := config(t, t.TempDir())
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	_ = cfg.Serving.Listener.Close()
	cfg.Serving.Listener = nil
	cfg.Serving.BindPort = taken.Addr().(*net.TCPAddr).Port
	if _, err := New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Errorf("New returned %v, want an error that names the address", err)
	}
}

func TestWithoutEtcdAReplicaIsLiveAndNotReady(t *testing.T) {
	cfg := config(t, t.TempDir())
	cfg.EmbeddedEtcd = nil
	cfg.Etcd.ServerList = []string{"http://127.0.0.1:1"}
	r := startReplica(t, cfg)
	if got := r.get(t, "/readyz"); got != http.StatusInternalServerError {
		t.Errorf("/readyz without etcd: %d", got)
	}
	if got := r.get(t, "/livez"); got != http.StatusOK {
		t.Errorf("/livez without etcd: %d", got)
	}
	began := time.Now()
	if err := r.stop(t); err != nil || time.Since(began) > 10*time.Second {
		t.Errorf("it took %v to stop, Run returned %v", time.Since(began), err)
	}
}

func TestAReplicaGetsReadyWhenItsEtcdComes(t *testing.T) {
	cfg := config(t, t.TempDir())
	embedded := *cfg.EmbeddedEtcd
	etcd := startEmbedded(t, embedded)
	cfg.EmbeddedEtcd, cfg.Etcd = nil, etcd.Transport()
	etcd.Close()
	r := startReplica(t, cfg)
	u, err := url.Parse(cfg.Etcd.ServerList[0])
	if err != nil {
		t.Fatal(err)
	}
	if embedded.ClientPort, err = strconv.Atoi(u.Port()); err != nil {
		t.Fatal(err)
	}
	defer startEmbedded(t, embedded).Close()
	r.untilReady(t)
	if err := r.stop(t); err != nil {
		t.Errorf("Run returned %v", err)
	}
}

// startEmbedded starts an etcd, which the caller closes.
func startEmbedded(t *testing.T, cfg etcd.Config) *etcd.Server {
	t.Helper()
	server, err := etcd.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// config is that of a replica on a port that the kernel chooses.
func config(t testing.TB, root string) Config {
	t.Helper()
	registry, err := controllers.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serving := genericoptions.NewSecureServingOptions()
	serving.ServerCert.CertDirectory = ""
	serving.BindAddress = net.IPv4(127, 0, 0, 1)
	serving.Listener, serving.BindPort = listener, listener.Addr().(*net.TCPAddr).Port
	loopback := net.IPv4(127, 0, 0, 1)
	return Config{
		Settings: Settings{
			Serving: serving, EtcdPrefix: "/registry", Audit: genericoptions.NewAuditOptions(), Tracing: genericoptions.NewTracingOptions(),
		},
		Shard:         "root",
		RootDirectory: root,
		Host:          loopback.String(),
		Advertise:     loopback,
		BaseURL:       "https://" + listener.Addr().String(),
		FixedBaseURL:  true,
		EmbeddedEtcd:  &etcd.Config{Directory: filepath.Join(root, "etcd")},
		Election:      defaultElection(),
		Registry:      registry,
	}
}

// replica is one that runs in this process.
type replica struct {
	server  *Server
	url     string
	root    string
	client  *http.Client
	cancel  context.CancelFunc
	ended   chan error
	stopped sync.Once
	result  error // once stopped
}

// startReplica starts a replica and waits until it is live. prepare gets it before it runs.
func startReplica(t testing.TB, cfg Config, prepare ...func(*Server)) *replica {
	t.Helper()
	s, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range prepare {
		f(s)
	}
	ca, err := os.ReadFile(filepath.Join(cfg.RootDirectory, pkiDirectory, pki.CACertFile))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	r := &replica{
		server: s,
		url:    cfg.BaseURL,
		root:   cfg.RootDirectory,
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}},
		ended:  make(chan error, 1),
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go func() { r.ended <- s.Run(ctx) }()
	path := "/readyz"
	if cfg.EmbeddedEtcd == nil {
		path = "/livez"
	}
	for r.get(t, path) != http.StatusOK {
		select {
		case err := <-r.ended:
			t.Fatalf("the replica ended while starting: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return r
}

// get returns the status of a GET, 0 if there is no answer.
func (r *replica) get(t testing.TB, path string) int {
	t.Helper()
	resp, err := r.client.Get(r.url + path)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}

// adminConfig has the admin's credentials, for a logical cluster.
func (r *replica) adminConfig(t testing.TB, cluster logicalcluster.Name) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(r.root, kubeconfigFile))
	if err != nil {
		t.Fatal(err)
	}
	config.Host, config.QPS = r.url, -1
	if !cluster.Empty() {
		config.Host += clusters.RequestPath(cluster)
	}
	return config
}

// configOf has a bearer token and no other credentials, for a logical cluster.
func (r *replica) configOf(t testing.TB, token string, cluster logicalcluster.Name) *rest.Config {
	t.Helper()
	config := rest.AnonymousClientConfig(r.adminConfig(t, cluster))
	config.BearerToken = token
	return config
}

// adminIn returns a client with the admin's credentials, for a logical cluster.
func (r *replica) adminIn(t testing.TB, cluster logicalcluster.Name) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(r.adminConfig(t, cluster))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// admin returns a client for the endpoints of the process.
func (r *replica) admin(t testing.TB) rest.Interface {
	return r.adminIn(t, "").Discovery().RESTClient()
}

// closeIdle closes the connections of clients: a server that stops gives those of HTTP/2 a second to do so.
func (r *replica) closeIdle() {
	r.client.CloseIdleConnections()
	admin, err := clientcmd.BuildConfigFromFlags("", filepath.Join(r.root, kubeconfigFile))
	if err != nil {
		return // there were no such clients
	}
	// client-go has one transport for all with the same certificates
	for _, config := range []*rest.Config{admin, rest.AnonymousClientConfig(admin)} {
		if through, err := rest.TransportFor(config); err == nil {
			utilnet.CloseIdleConnectionsFor(through)
		}
	}
}

// stop asks the replica to stop and returns what Run returned. It may be called more than once.
func (r *replica) stop(t testing.TB) error {
	t.Helper()
	r.stopped.Do(func() {
		r.closeIdle()
		r.cancel()
		r.result = <-r.ended
	})
	return r.result
}
