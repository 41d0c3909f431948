package pki

import (
	"bytes"
	"fmt"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/regent-project/regent/pkg/clusters"
)

// Kubeconfig says what the admin's kubeconfig contains.
type Kubeconfig struct {
	// BaseURL is the URL under which clients reach the shard, or the installation, without /clusters. The contexts `root` and
	// `system:admin` lead there.
	BaseURL string
	// Contexts has further contexts by name, each with its server's URL. One of them may be `system:admin`.
	Contexts map[string]string
	// Replace says whether to rewrite a file that names another shard URL or another authority. Otherwise an existing file is
	// kept.
	Replace bool
}

// WriteKubeconfig writes the admin's kubeconfig if it is missing, or if it differs and cfg.Replace is set. It returns the base
// URL that the file then names, or "" for a file that Regent did not write. Many replicas may call it at the same time.
func (b *Bundle) WriteKubeconfig(name string, cfg Kubeconfig) (baseURL string, err error) {
	unlock, err := lock(b.file("lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(name) {
		existing, ca := b.readKubeconfig(name)
		same := existing == cfg.BaseURL && bytes.Equal(ca, b.CAPEM)
		if !cfg.Replace || (same && len(cfg.Contexts) == 0) {
			return existing, nil
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
	for name, url := range cfg.Contexts {
		add(name, url)
	}
	out.CurrentContext = root
	return out
}

// readKubeconfig returns the shard's base URL and authority that a kubeconfig names, or nothing if Regent did not write it.
func (b *Bundle) readKubeconfig(name string) (baseURL string, ca []byte) {
	existing, err := clientcmd.LoadFromFile(filepath.Clean(name))
	if err != nil {
		return "", nil
	}
	cluster, ok := existing.Clusters[clusters.Root.String()]
	if !ok {
		return "", nil
	}
	url, ok := bytes.CutSuffix([]byte(cluster.Server), []byte(clusters.RequestPath(clusters.Root)))
	if !ok {
		return "", nil
	}
	return string(url), cluster.CertificateAuthorityData
}

// rewriteKubeconfig returns a kubeconfig in which next's credentials stand wherever b's stood. Everything else is as it was.
func (b *Bundle) rewriteKubeconfig(name string, next *Bundle) ([]byte, error) {
	existing, err := clientcmd.LoadFromFile(filepath.Clean(name))
	if err != nil {
		return nil, fmt.Errorf("cannot read the admin's kubeconfig, remove it to have it made again at the next start: %w", err)
	}
	for _, who := range existing.AuthInfos {
		if bytes.Equal(who.ClientCertificateData, b.AdminCertPEM) {
			who.ClientCertificateData, who.ClientKeyData = next.AdminCertPEM, next.AdminKeyPEM
		}
	}
	for _, cluster := range existing.Clusters {
		if bytes.Equal(cluster.CertificateAuthorityData, b.CAPEM) {
			cluster.CertificateAuthorityData = next.CAPEM
		}
	}
	content, err := clientcmd.Write(*existing)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the admin's kubeconfig: %w", err)
	}
	return content, nil
}
