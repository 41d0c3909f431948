package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/test/e2e/harness"
)

// authority signs certificates, in files.
type authority struct {
	t         *testing.T
	directory string
	cert      *x509.Certificate
	key       *ecdsa.PrivateKey
	file      string
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t, directory: t.TempDir()}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.file, _ = a.sign(template, "ca")
	return a
}

// issue makes a certificate for loopback and for a client, and returns its files.
func (a *authority) issue(name string, groups ...string) (cert, key string) {
	return a.issueUntil(time.Time{}, name, groups...)
}

// issueUntil is issue with the moment when the certificate expires. Zero: in an hour.
func (a *authority) issueUntil(end time.Time, name string, groups ...string) (cert, key string) {
	return a.sign(&x509.Certificate{
		NotAfter:    end,
		Subject:     pkix.Name{CommonName: name, Organization: groups},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, name)
}

func (a *authority) sign(template *x509.Certificate, file string) (cert, key string) {
	a.t.Helper()
	must := func(err error) {
		a.t.Helper()
		if err != nil {
			a.t.Fatal(err)
		}
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &private.PublicKey, signer)
	must(err)
	if a.cert == nil {
		a.cert, err = x509.ParseCertificate(der)
		must(err)
		a.key = private
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	must(err)
	cert, key = filepath.Join(a.directory, file+".crt"), filepath.Join(a.directory, file+".key")
	must(os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o600))
	return cert, key
}

// startTLSEtcd starts an etcd that talks only to clients whose certificates a has signed.
func startTLSEtcd(t *testing.T, a *authority) (url string) {
	t.Helper()
	ports := harness.FreePorts(t, 2)
	cert, key := a.issue("etcd")
	client, peer := fmt.Sprintf("https://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	harness.Start(t, "etcd", harness.Binary("etcd"),
		"--name=e2e", "--data-dir="+filepath.Join(t.TempDir(), "etcd"), "--log-level=error",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=e2e="+peer,
		"--cert-file="+cert, "--key-file="+key, "--trusted-ca-file="+a.file, "--client-cert-auth")
	return client
}

func write(t testing.TB, name, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestOnlyTheRightCredentialsOpenEtcdAndTheServer(t *testing.T) {
	forEtcd, forUsers := newAuthority(t, "etcd-ca"), newAuthority(t, "users-ca")
	etcdCert, etcdKey := forEtcd.issue("regent")
	audit := filepath.Join(t.TempDir(), "audit.log")
	shard := harness.NewShard(startTLSEtcd(t, forEtcd))
	shard.Args = []string{
		"--etcd-cafile=" + forEtcd.file, "--etcd-certfile=" + etcdCert, "--etcd-keyfile=" + etcdKey,
		"--client-ca-file=" + forUsers.file,
		"--token-auth-file=" + write(t, "tokens.csv", "let-me-in,mary,1,\"system:masters\"\njust-looking,john,2\n"),
		"--audit-log-path=" + audit,
		"--audit-policy-file=" + write(t, "policy.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"),
		"--tracing-config-file=" + write(t, "tracing.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: 127.0.0.1:1\nsamplingRatePerMillion: 0\n"),
		"--logging-format=json",
	}
	r := shard.Start(t, "a")
	r.WaitRoot()

	// list is the status of a list of namespaces.
	list := func(path string, change func(*rest.Config)) int {
		t.Helper()
		config := r.Config("root")
		config.Host, config.CertFile, config.KeyFile = r.URL, "", ""
		change(config)
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		var status int
		_ = client.CoreV1().RESTClient().Get().AbsPath(path).Do(t.Context()).StatusCode(&status)
		return status
	}
	const namespaces = "/clusters/root/api/v1/namespaces"
	certificate := func(a *authority, name string, groups ...string) func(*rest.Config) {
		cert, key := a.issue(name, groups...)
		return func(c *rest.Config) { c.CertFile, c.KeyFile = cert, key }
	}
	token := func(token string) func(*rest.Config) { return func(c *rest.Config) { c.BearerToken = token } }
	for _, c := range []struct {
		who    string
		path   string
		change func(*rest.Config)
		want   int
	}{
		{"a member of system:masters by certificate", namespaces, certificate(forUsers, "mary", "system:masters"), http.StatusOK},
		{"somebody by certificate", namespaces, certificate(forUsers, "john", "system:authenticated"), http.StatusForbidden},
		{"somebody by a certificate of etcd's authority", namespaces, certificate(forEtcd, "eve", "system:masters"), http.StatusUnauthorized},
		{"a member of system:masters by token", namespaces, token("let-me-in"), http.StatusOK},
		{"somebody by token", namespaces, token("just-looking"), http.StatusForbidden},
		{"a wrong token", namespaces, token("let-me-in-too"), http.StatusUnauthorized},
		{"nobody", namespaces, func(*rest.Config) {}, http.StatusUnauthorized},
		{"nobody, for health", "/readyz", func(*rest.Config) {}, http.StatusOK},
		{"nobody, for the version", "/version", func(*rest.Config) {}, http.StatusOK},
		{"nobody, for metrics", "/metrics", func(*rest.Config) {}, http.StatusUnauthorized},
		{"nobody, for profiles", "/debug/pprof/", func(*rest.Config) {}, http.StatusUnauthorized},
	} {
		if got := list(c.path, c.change); got != c.want {
			t.Errorf("%s: %d, want %d", c.who, got, c.want)
		}
	}
	if out, err := r.AdminKubectl("root", "get", "clusterroles").CombinedOutput(); err != nil {
		t.Errorf("the admin of the generated kubeconfig: %v\n%s", err, out)
	}
	harness.Eventually(t, "the audit log names the user and the logical cluster", func() bool {
		log, err := os.ReadFile(audit)
		return err == nil && strings.Contains(string(log), `"username":"mary"`) && strings.Contains(string(log), `"kcp.io/cluster":"root"`)
	})
	if !strings.Contains(r.Log(), `"msg":"Leading"`) {
		t.Error("the log is no JSON")
	}
}
