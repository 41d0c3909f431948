package e2e

import (
	"crypto/tls"
	"net/http/httptrace"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/test/e2e/harness"
)

// replace puts one file in another's place, as tools that renew certificates do.
func replace(t *testing.T, name, by string) {
	t.Helper()
	content, err := os.ReadFile(by)
	if err == nil {
		err = os.WriteFile(name+".new", content, 0o600)
	}
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// shows returns the serial number of the certificate that a replica shows to new connections.
func shows(t *testing.T, r *harness.Replica) string {
	t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(r.URL, "https://"), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it only looks
	if err != nil {
		return err.Error()
	}
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// The operator's own serving certificate and authorities for clients are exchanged while the replica runs. Watches and
// connections stay.
func TestTheOperatorsCertificatesAreReloadedWithoutDroppingConnections(t *testing.T) {
	t.Parallel() // most of it is waiting
	serving, users, later := newAuthority(t, "serving-ca"), newAuthority(t, "users-ca"), newAuthority(t, "later-ca")
	cert, key := serving.issue("first")
	nextCert, nextKey := serving.issue("second")
	clientCAs := write(t, "clients.crt", string(mustReadFile(t, users.file)))
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	shard.Args = []string{"--tls-cert-file=" + cert, "--tls-private-key-file=" + key, "--client-ca-file=" + clientCAs}
	r := shard.Launch(t, "a")
	by := func(a *authority) *rest.Config {
		cert, key := a.issue("mary", "system:masters")
		return &rest.Config{Host: r.URL + "/clusters/root", TLSClientConfig: rest.TLSClientConfig{CAFile: serving.file, CertFile: cert, KeyFile: key}}
	}
	first := by(users)
	mary, err := kubernetes.NewForConfig(first)
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "root serves", func() bool {
		_, err := mary.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	watch, err := mary.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()

	was := shows(t, r)
	replace(t, key, nextKey) // for a moment the two do not fit
	replace(t, cert, nextCert)
	harness.Eventually(t, "new connections get the new certificate", func() bool { now := shows(t, r); return now != was && len(now) > 10 })
	if !reusesItsConnection(t, first, mary) {
		t.Error("the connection was dropped")
	}
	if reads(t, by(later)) == nil {
		t.Error("an authority that nobody has named is trusted")
	}
	both := append(mustReadFile(t, users.file), mustReadFile(t, later.file)...)
	replace(t, clientCAs, write(t, "both.crt", string(both)))
	john := by(later)
	harness.Eventually(t, "the further authority is trusted", func() bool { return reads(t, john) == nil })
	replace(t, clientCAs, later.file)
	harness.Eventually(t, "the first authority is trusted no more", func() bool { return reads(t, first) != nil })
	if err := reads(t, john); err != nil {
		t.Errorf("the authority that stays: %v", err)
	}
	johns, err := kubernetes.NewForConfig(john)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := johns.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "after"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for event := range watch.ResultChan() {
		if o, ok := event.Object.(metav1.Object); ok && o.GetName() == "after" {
			return
		}
	}
	t.Error("the watch ended")
}

// reusesItsConnection reports whether a request of a client goes over a connection that was open.
func reusesItsConnection(t *testing.T, config *rest.Config, client kubernetes.Interface) bool {
	t.Helper()
	var reused bool
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }})
	if _, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err != nil {
		t.Errorf("%s: %v", config.Host, err)
	}
	return reused
}

func mustReadFile(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
