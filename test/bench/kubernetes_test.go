package bench

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/regent-project/regent/test/e2e/harness"
)

// kubernetesAPI is a kube-apiserver as it comes, on an etcd of its own.
type kubernetesAPI struct {
	place
	admin  kubernetes.Interface
	config *restclient.Config
}

// startKubernetes returns when it is ready.
func startKubernetes(b testing.TB) *kubernetesAPI {
	b.Helper()
	if err := makeKubernetes(); err != nil {
		b.Fatal(err)
	}
	etcd := harness.StartEtcd(b)
	a := newAccounts(b)
	k := &kubernetesAPI{}
	_, k.config = a.serve(b, "kube-apiserver", harness.Binary("kube-apiserver"), etcd.URL)
	client, err := kubernetes.NewForConfig(k.config)
	if err != nil {
		b.Fatal(err)
	}
	k.admin = client
	k.name, k.writes = "kube-apiserver", follow(b, etcd.Client(b), plainly, configMap)
	return k
}

// makeKubernetes builds kube-apiserver, where harness.Binary finds it.
func makeKubernetes() error {
	make := exec.Command("make", "-C", harness.File("."), "bin/kube-apiserver")
	make.Stdout, make.Stderr = os.Stderr, os.Stderr
	if err := make.Run(); err != nil {
		return fmt.Errorf("cannot build kube-apiserver: %w", err)
	}
	return nil
}

// accounts are what the API servers of one cluster share: the tokens of the administrator and of the controller
// manager, the file of both, and the key of service accounts.
type accounts struct{ token, controllers, tokens, key string }

func newAccounts(b testing.TB) accounts {
	b.Helper()
	directory := b.TempDir()
	a := accounts{token: rand.Text(), controllers: rand.Text(), tokens: filepath.Join(directory, "tokens.csv"), key: filepath.Join(directory, "accounts.key")}
	if err := os.WriteFile(a.key, newKey(b), 0o600); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(a.tokens, []byte(a.token+",admin,admin,system:masters\n"+a.controllers+",system:kube-controller-manager,controllers\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	return a
}

// serve starts a kube-apiserver, with further flags, and returns when it is ready.
func (a accounts) serve(b testing.TB, name, binary, etcd string, flags ...string) (*harness.Process, *restclient.Config) {
	b.Helper()
	port := harness.FreePorts(b, 1)[0]
	process := harness.Start(b, name, binary, append([]string{
		"--etcd-servers=" + etcd, "--token-auth-file=" + a.tokens, "--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + a.key, "--service-account-signing-key-file=" + a.key,
		"--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none", "--cert-dir=" + b.TempDir(),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
	}, flags...)...)
	config := &restclient.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", port), BearerToken: a.token, TLSClientConfig: restclient.TLSClientConfig{Insecure: true},
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	harness.Eventually(b, name+" is ready", func() bool {
		answer, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(b.Context())
		return err == nil && strings.TrimSpace(string(answer)) == "ok"
	})
	return process, config
}

// kubeconfig writes one of somebody, and returns where it is.
func (k *kubernetesAPI) kubeconfig(b testing.TB, token string) string {
	b.Helper()
	return kubeconfig(b, k.config.Host, token)
}

func kubeconfig(b testing.TB, server, token string) string {
	b.Helper()
	file := filepath.Join(b.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"it": {Server: server, InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"it": {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{"it": {Cluster: "it", AuthInfo: "it", Namespace: "default"}},
		CurrentContext: "it",
	}, file); err != nil {
		b.Fatal(err)
	}
	return file
}

func newKey(b testing.TB) []byte {
	b.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		b.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
}
