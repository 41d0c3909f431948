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
	make := exec.Command("make", "-C", harness.File("."), "bin/kube-apiserver")
	make.Stdout, make.Stderr = os.Stderr, os.Stderr
	if err := make.Run(); err != nil {
		b.Fatalf("cannot build kube-apiserver: %v", err)
	}
	etcd, directory, port := harness.StartEtcd(b), b.TempDir(), harness.FreePorts(b, 1)[0]
	key, tokens := filepath.Join(directory, "accounts.key"), filepath.Join(directory, "tokens.csv")
	if err := os.WriteFile(key, newKey(b), 0o600); err != nil {
		b.Fatal(err)
	}
	token := rand.Text()
	if err := os.WriteFile(tokens, []byte(token+",admin,admin,system:masters\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	harness.Start(b, "kube-apiserver", harness.Binary("kube-apiserver"), "--etcd-servers="+etcd.URL, "--token-auth-file="+tokens, "--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+key, "--service-account-signing-key-file="+key,
		"--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none", "--cert-dir="+directory,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port))
	k := &kubernetesAPI{config: &restclient.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", port), BearerToken: token, TLSClientConfig: restclient.TLSClientConfig{Insecure: true},
	}}
	client, err := kubernetes.NewForConfig(k.config)
	if err != nil {
		b.Fatal(err)
	}
	k.admin = client
	harness.Eventually(b, "kube-apiserver is ready", func() bool {
		answer, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(b.Context())
		return err == nil && strings.TrimSpace(string(answer)) == "ok"
	})
	k.name, k.writes = "kube-apiserver", follow(b, etcd.Client(b), plainly, configMap)
	return k
}

// kubeconfig writes one of somebody, and returns where it is.
func (k *kubernetesAPI) kubeconfig(b *testing.B, token string) string {
	b.Helper()
	file := filepath.Join(b.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"it": {Server: k.config.Host, InsecureSkipTLSVerify: true}},
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
