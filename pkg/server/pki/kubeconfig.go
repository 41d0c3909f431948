package pki

import (
	"bytes"
	"fmt"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/regent-project/regent/pkg/clusters"
)

// Kubeconfig says what the admin's kubeconfig names.
type Kubeconfig struct {
	// BaseURL is where clients reach the shard, without /clusters. The contexts `root` and `system:admin` lead there.
	BaseURL string
	// Direct names further contexts, each with the base URL of one replica; they lead to its root.
	Direct map[string]string
	// Replace says whether to rewrite a file that names another shard URL or another authority. Otherwise any file
	// that stands is kept.
	Replace bool
}

// WriteKubeconfig writes the admin's kubeconfig if there is none, or if it differs and cfg says so. It returns the base
// URL that the file names now, empty if somebody wrote a file of another make. It may be called by many replicas at the
// same time.
func (b *Bundle) WriteKubeconfig(name string, cfg Kubeconfig) (baseURL string, err error) {
	unlock, err := lock(b.file("lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(name) {
		standing, ca := b.readKubeconfig(name)
		same := standing == cfg.BaseURL && bytes.Equal(ca, b.CAPEM)
		if !cfg.Replace || (same && len(cfg.Direct) == 0) {
			return standing, nil
		}
	}
	content, err := clientcmd.Write(b.kubeconfig(cfg))
	if err != nil {
		return "", fmt.Errorf("cannot encode the admin's kubeconfig: %w", err)
	}
	if err := writeFile(name, content); err != nil {
		return "", err
	}
	return cfg.BaseURL, nil
}

const adminUser = "admin"

func (b *Bundle) kubeconfig(cfg Kubeconfig) clientcmdapi.Config {
	out := *clientcmdapi.NewConfig()
	out.AuthInfos[adminUser] = &clientcmdapi.AuthInfo{
		ClientCertificateData: b.AdminCertPEM,
		ClientKeyData:         b.AdminKeyPEM,
	}
	add := func(name, url string) {
		out.Clusters[name] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: b.CAPEM}
		out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: adminUser, Namespace: "default"}
	}
	root, systemAdmin := clusters.Root.String(), clusters.SystemAdmin.String()
	add(root, cfg.BaseURL+clusters.RequestPath(clusters.Root))
	add(systemAdmin, cfg.BaseURL+clusters.RequestPath(clusters.SystemAdmin))
	for name, url := range cfg.Direct {
		add(name, url+clusters.RequestPath(clusters.Root))
	}
	out.CurrentContext = root
	return out
}

// readKubeconfig returns what a kubeconfig names as the shard's base URL and authority, empty if it is not of our make.
func (b *Bundle) readKubeconfig(name string) (baseURL string, ca []byte) {
	standing, err := clientcmd.LoadFromFile(filepath.Clean(name))
	if err != nil {
		return "", nil
	}
	cluster, ok := standing.Clusters[clusters.Root.String()]
	if !ok {
		return "", nil
	}
	url, ok := bytes.CutSuffix([]byte(cluster.Server), []byte(clusters.RequestPath(clusters.Root)))
	if !ok {
		return "", nil
	}
	return string(url), cluster.CertificateAuthorityData
}
