package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
)

func TestReplicasThatStartTogetherShareTheirKeys(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "pki")
	bundles := make([]*Bundle, 16)
	var wg sync.WaitGroup
	for i := range bundles {
		wg.Go(func() {
			b, err := Ensure(directory)
			if err != nil {
				t.Error(err)
				return
			}
			bundles[i] = b
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for _, b := range bundles[1:] {
		if !bytes.Equal(b.CAPEM, bundles[0].CAPEM) || !bytes.Equal(b.AdminKeyPEM, bundles[0].AdminKeyPEM) {
			t.Fatal("two replicas got different keys")
		}
	}
}

func TestFilesAreTheOwnersOnly(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "pki")
	b := ensure(t, directory)
	if _, err := b.WriteKubeconfig(filepath.Join(directory, "admin.kubeconfig"), Kubeconfig{BaseURL: "https://h:1"}); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("%s has mode %o, want 600", e.Name(), mode)
		}
		if strings.HasPrefix(e.Name(), ".") {
			t.Errorf("temporary file %s was left behind", e.Name())
		}
	}
}

func TestKeysThatOthersMayUseAreRefused(t *testing.T) {
	for _, c := range []struct {
		file string // empty: the directory
		mode os.FileMode
		ok   bool
	}{
		{"", 0o777, false}, {"", 0o770, false}, {"", 0o722, false}, {"", 0o755, true}, {"", 0o500, true},
		{CAKeyFile, 0o644, false}, {CAKeyFile, 0o640, false}, {CAKeyFile, 0o602, false}, {CAKeyFile, 0o400, true},
		{AdminKeyFile, 0o604, false}, {AdminKeyFile, 0o600, true},
		{CACertFile, 0o644, true}, {AdminCertFile, 0o644, true},
	} {
		directory := filepath.Join(t.TempDir(), "pki")
		was := ensure(t, directory)
		named := filepath.Join(directory, c.file)
		if err := os.Chmod(named, c.mode); err != nil {
			t.Fatal(err)
		}
		b, err := Ensure(directory)
		switch {
		case c.ok && (err != nil || !bytes.Equal(b.AdminKeyPEM, was.AdminKeyPEM)):
			t.Errorf("%q of mode %o: %v, want the same keys as before", c.file, c.mode, err)
		case !c.ok && (err == nil || !strings.Contains(err.Error(), "chmod") || !strings.Contains(err.Error(), named)):
			t.Errorf("%q of mode %o: got %v, want the chmod to run", c.file, c.mode, err)
		}
	}
}

func TestAStartCutShortIsMadeGood(t *testing.T) {
	directory := newDirectory(t)
	if err := os.WriteFile(filepath.Join(directory, CAKeyFile), []byte("half a k"), 0o600); err != nil {
		t.Fatal(err)
	}
	ensure(t, directory)
}

func TestALostAuthorityIsNotMadeAnew(t *testing.T) {
	directory := newDirectory(t)
	ensure(t, directory)
	key, err := os.ReadFile(filepath.Join(directory, CAKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	lost := filepath.Join(directory, CACertFile)
	if err := os.Remove(lost); err != nil {
		t.Fatal(err)
	}
	if _, err := Ensure(directory); err == nil || !strings.Contains(err.Error(), lost+" is missing") {
		t.Errorf("got %v, want an error that says that %s is missing", err, lost)
	}
	if kept, err := os.ReadFile(filepath.Join(directory, CAKeyFile)); err != nil || !bytes.Equal(kept, key) {
		t.Errorf("the authority's key was written anew: %v", err)
	}
}

func TestAServingCertificateProvesItsNamesToTheAdmin(t *testing.T) {
	b := ensure(t, newDirectory(t))
	certPEM, keyPEM, err := b.ServingCert([]string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(b.CAPEM)
	for _, name := range []string{"localhost", "127.0.0.1"} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMismatchedFilesAreRefusedByName(t *testing.T) {
	for _, c := range []struct{ replace, with, named string }{
		{CAKeyFile, CAKeyFile, CAKeyFile},
		{AdminCertFile, AdminCertFile, AdminCertFile},
	} {
		t.Run(c.replace, func(t *testing.T) {
			directory, other := newDirectory(t), newDirectory(t)
			ensure(t, directory)
			ensure(t, other)
			content, err := os.ReadFile(filepath.Join(other, c.with))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(directory, c.replace), content, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Ensure(directory); err == nil || !strings.Contains(err.Error(), c.named) {
				t.Errorf("got %v, want an error that names %s", err, c.named)
			}
		})
	}
}

func TestTheAuthoritysKeyMayBeKeptElsewhere(t *testing.T) {
	directory := newDirectory(t)
	ensure(t, directory)
	if err := os.Remove(filepath.Join(directory, CAKeyFile)); err != nil {
		t.Fatal(err)
	}
	b := ensure(t, directory)
	if _, _, err := b.ServingCert(nil, nil); err == nil || !strings.Contains(err.Error(), "--tls-cert-file") {
		t.Errorf("got %v, want advice", err)
	}
}

func TestTheKubeconfigIsRewrittenOnlyWhenAskedToAndDifferent(t *testing.T) {
	directory := newDirectory(t)
	b := ensure(t, directory)
	name := filepath.Join(directory, "admin.kubeconfig")
	write := func(cfg Kubeconfig, want string) {
		t.Helper()
		got, err := b.WriteKubeconfig(name, cfg)
		if err != nil || got != want {
			t.Fatalf("WriteKubeconfig(%+v) = %q, %v; want %q", cfg, got, err, want)
		}
	}
	write(Kubeconfig{BaseURL: "https://a:1", Contexts: map[string]string{"replica-0": "https://r:2/clusters/root"}}, "https://a:1")
	write(Kubeconfig{BaseURL: "https://b:1"}, "https://a:1")
	write(Kubeconfig{BaseURL: "https://a:1", Replace: true}, "https://a:1")

	cfg, err := clientcmd.LoadFromFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for context, url := range map[string]string{
		"root":         "https://a:1/clusters/root",
		"system:admin": "https://a:1/clusters/system:admin",
		"replica-0":    "https://r:2/clusters/root",
	} {
		if got := cfg.Clusters[context].Server; got != url {
			t.Errorf("context %s leads to %s, want %s", context, got, url)
		}
	}
	write(Kubeconfig{BaseURL: "https://b:1", Replace: true}, "https://b:1")
}

// docs/ACCESS.md has users add themselves to the administrator's kubeconfig. make run writes it anew at each start.
func TestTheKubeconfigKeepsWhatUsersHaveAdded(t *testing.T) {
	directory := newDirectory(t)
	b := ensure(t, directory)
	name := filepath.Join(directory, "admin.kubeconfig")
	write := func(url string, contexts map[string]string) *clientcmdapi.Config {
		t.Helper()
		if _, err := b.WriteKubeconfig(name, Kubeconfig{BaseURL: url, Contexts: contexts, Replace: true}); err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.LoadFromFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return config
	}
	added := write("https://a:1", map[string]string{"replica-0": "https://r:2/clusters/root", "replica-1": "https://r:3/clusters/root"})
	added.Clusters["team-a"] = &clientcmdapi.Cluster{Server: "https://a:1/clusters/root:team-a"}
	added.AuthInfos["ann"] = &clientcmdapi.AuthInfo{Token: "secret"}
	added.AuthInfos[adminUser].ClientKeyData = []byte("out of date")
	added.Contexts["ann"] = &clientcmdapi.Context{Cluster: "team-a", AuthInfo: "ann", Namespace: "hers"}
	added.Contexts["admin-team-a"] = &clientcmdapi.Context{Cluster: "team-a", AuthInfo: adminUser}
	added.CurrentContext = "ann"
	if err := clientcmd.WriteToFile(*added, name); err != nil {
		t.Fatal(err)
	}

	again := write("https://b:1", map[string]string{"replica-0": "https://r:4/clusters/root"})
	if got, want := slices.Sorted(maps.Keys(again.Contexts)), []string{"admin-team-a", "ann", "replica-0", "root", "system:admin"}; !slices.Equal(got, want) {
		t.Errorf("contexts %q, want %q: replica-1 is gone", got, want)
	}
	if got, want := slices.Sorted(maps.Keys(again.Clusters)), []string{"replica-0", "root", "system:admin", "team-a"}; !slices.Equal(got, want) {
		t.Errorf("clusters %q, want %q", got, want)
	}
	if again.AuthInfos["ann"] == nil || again.AuthInfos["ann"].Token != "secret" || again.Contexts["ann"].Namespace != "hers" || again.CurrentContext != "ann" {
		t.Errorf("it says of ann: %+v, %+v, and %q is current", again.AuthInfos["ann"], again.Contexts["ann"], again.CurrentContext)
	}
	if !bytes.Equal(again.AuthInfos[adminUser].ClientKeyData, b.AdminKeyPEM) || again.Clusters["root"].Server != "https://b:1/clusters/root" ||
		again.Clusters["replica-0"].Server != "https://r:4/clusters/root" {
		t.Error("what is Regent's own was not replaced")
	}

	again.CurrentContext = "replica-0"
	if err := clientcmd.WriteToFile(*again, name); err != nil {
		t.Fatal(err)
	}
	if last := write("https://b:1", map[string]string{"other": "https://r:5/clusters/root"}); last.CurrentContext != "root" {
		t.Errorf("the current context is %q, which is gone", last.CurrentContext)
	}
}

// The workspace that was entered last is the current one also after a restart, at the server and with the authority
// that there are then.
func TestAWorkspaceStaysEntered(t *testing.T) {
	directory := newDirectory(t)
	b := ensure(t, directory)
	name := filepath.Join(directory, "admin.kubeconfig")
	for n, url := range []string{"https://a:1", "https://b:1", "https://b:1"} {
		replace := Kubeconfig{BaseURL: url, Contexts: map[string]string{"replica-0": "https://r:4/clusters/root"}, Replace: true}
		if _, err := b.WriteKubeconfig(name, replace); err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.LoadFromFile(name)
		if err != nil {
			t.Fatal(err)
		}
		const entered = enteredPrefix + "current"
		if n > 0 {
			c := config.Clusters[entered]
			if config.CurrentContext != entered || c == nil || c.Server != url+"/clusters/root:a" || !bytes.Equal(c.CertificateAuthorityData, b.CAPEM) {
				t.Fatalf("at start %d: current is %q, with %+v", n, config.CurrentContext, c)
			}
			// as after a roll of the authority
			config.Clusters["root"].CertificateAuthorityData = []byte("of before")
			c.CertificateAuthorityData = []byte("of before")
		} else {
			c := *config.Clusters["root"]
			c.Server = url + "/clusters/root:a"
			config.Clusters[entered] = &c
			config.Contexts[entered] = &clientcmdapi.Context{Cluster: entered, AuthInfo: adminUser}
			config.CurrentContext = entered
		}
		if err := clientcmd.WriteToFile(*config, name); err != nil {
			t.Fatal(err)
		}
	}
}

// newDirectory is the owner's only, whatever the umask.
func newDirectory(t testing.TB) string {
	t.Helper()
	directory := t.TempDir()
	if err := os.Chmod(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	return directory
}

func ensure(t testing.TB, directory string) *Bundle {
	t.Helper()
	b, err := Ensure(directory)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A clock may be hours ahead, or decades behind on a machine that keeps no time, when keys are made, and be set right
// after.
func TestCertificatesOutliveAStepOfTheClock(t *testing.T) {
	b := ensure(t, t.TempDir())
	serving, _, err := b.ServingCert([]string{"localhost"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	mutual, err := EnsureMutual(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const year = 365 * 24 * time.Hour
	back, on := []time.Duration{0, -2 * time.Hour, -40 * year}, []time.Duration{60 * year}
	for name, c := range map[string]struct {
		cert  *x509.Certificate
		roots []byte
		usage x509.ExtKeyUsage
		steps []time.Duration
	}{
		"the serving certificate": {parse(t, serving), b.CAPEM, x509.ExtKeyUsageServerAuth, back},
		"the admin's certificate": {parse(t, b.AdminCertPEM), b.CAPEM, x509.ExtKeyUsageClientAuth, back},
		"a loopback's server":     {mutual.Leaf, toPEM(mutual.Leaf), x509.ExtKeyUsageServerAuth, append(on, back...)},
		"a loopback's client":     {mutual.Leaf, toPEM(mutual.Leaf), x509.ExtKeyUsageClientAuth, append(on, back...)},
	} {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(c.roots)
		for _, step := range c.steps {
			if _, err := c.cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{c.usage}, CurrentTime: time.Now().Add(step)}); err != nil {
				t.Errorf("%s, after a step of %v: %v", name, step, err)
			}
		}
	}
	// It ends with its process, so it needs no end, even if the authority has one.
	if end := parse(t, serving).NotAfter; time.Until(end) < 60*year {
		t.Errorf("the serving certificate ends at %v", end)
	}
}

func parse(t *testing.T, content []byte) *x509.Certificate {
	t.Helper()
	certs, err := cert.ParseCertsPEM(content)
	if err != nil {
		t.Fatal(err)
	}
	return certs[0]
}

func toPEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func TestReplicasThatStartTogetherShareTheLoopbacksKey(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "pki")
	keys := make([]tls.Certificate, 16)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			var err error
			if keys[i], err = EnsureMutual(directory); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, key := range keys {
		if key.Leaf == nil || !key.Leaf.Equal(keys[0].Leaf) {
			t.Fatal("two got different keys")
		}
	}
}

// The loopback's key opens the embedded etcd.
func TestALoopbacksKeyThatOthersMayUseIsRefused(t *testing.T) {
	for _, c := range []struct {
		file string
		mode os.FileMode
		ok   bool
	}{{"", 0o777, false}, {"", 0o720, false}, {"", 0o755, true}, {MutualKeyFile, 0o640, false}, {MutualKeyFile, 0o400, true}, {MutualCertFile, 0o644, true}} {
		directory := newDirectory(t)
		was, err := EnsureMutual(directory)
		if err != nil {
			t.Fatal(err)
		}
		named := filepath.Join(directory, c.file)
		if err := os.Chmod(named, c.mode); err != nil {
			t.Fatal(err)
		}
		pair, err := EnsureMutual(directory)
		switch {
		case c.ok && (err != nil || !pair.Leaf.Equal(was.Leaf)):
			t.Errorf("%q of mode %o: %v, want the same key as before", c.file, c.mode, err)
		case !c.ok && (err == nil || !strings.Contains(err.Error(), "chmod") || !strings.Contains(err.Error(), named)):
			t.Errorf("%q of mode %o: got %v, want the chmod to run", c.file, c.mode, err)
		}
	}
}
