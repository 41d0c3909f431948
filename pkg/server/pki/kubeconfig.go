package pki

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/regent-project/regent/pkg/clusters"
)

// Kubeconfig says what the admin's kubeconfig contains.
type Kubeconfig struct {
	// BaseURL is the URL under which clients reach the shard, or the installation, without /clusters. The contexts
	// `root` and `system:admin` lead there.
	BaseURL string
	// Contexts has further contexts by name, each with its server's URL. One of them may be `system:admin`.
	Contexts map[string]string
	// Replace says whether to rewrite a file that names another shard URL or another authority. What users have
	// added to it stays. Otherwise an existing file is kept as it is.
	Replace bool
}

// WriteKubeconfig writes the admin's kubeconfig if it is missing, or if it differs and cfg.Replace is set. It returns
// the base URL that the file then names, or "" for a file that Regent did not write. Many replicas may call it at the
// same time.
func (b *Bundle) WriteKubeconfig(name string, cfg Kubeconfig) (baseURL string, err error) {
	unlock, err := lock(b.directory)
	if err != nil {
		return "", err
	}
	defer unlock()
	var existing *clientcmdapi.Config
	if exists(name) {
		// nil: not a kubeconfig, nobody loses anything
		existing, _ = clientcmd.LoadFromFile(filepath.Clean(name))
		url, ca := namedBy(existing)
		same := url == cfg.BaseURL && bytes.Equal(ca, b.CAPEM)
		if !cfg.Replace || (same && len(cfg.Contexts) == 0) {
			return url, nil
		}
	}
	config := b.kubeconfig(cfg)
	keepUsers(&config, existing)
	content, err := clientcmd.Write(config)
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

// keepUsers adds to a new kubeconfig what users have added to the one before: docs/ACCESS.md has them do so. What
// Regent wrote itself, which may be out of date, is not kept. It is known by its form: a context named as its cluster,
// with the administrator. A workspace that the administrator has entered stays entered: see follow.
func keepUsers(config, before *clientcmdapi.Config) {
	if before == nil {
		return
	}
	ours := func(name string) bool {
		c := before.Contexts[name]
		return c != nil && c.AuthInfo == adminUser && c.Cluster == name && !strings.HasPrefix(name, enteredPrefix)
	}
	for name, c := range before.Contexts {
		if _, taken := config.Contexts[name]; !taken && c != nil && !ours(name) {
			config.Contexts[name] = c
		}
	}
	for name, c := range before.Clusters {
		if _, taken := config.Clusters[name]; !taken && c != nil && !ours(name) {
			config.Clusters[name] = c
			if strings.HasPrefix(name, enteredPrefix) {
				follow(c, before.Clusters[clusters.Root.String()], config.Clusters[clusters.Root.String()])
			}
		}
	}
	for name, u := range before.AuthInfos {
		if _, taken := config.AuthInfos[name]; !taken && u != nil {
			config.AuthInfos[name] = u
		}
	}
	if _, there := config.Contexts[before.CurrentContext]; there {
		config.CurrentContext = before.CurrentContext
	}
}

// enteredPrefix begins the contexts of `regent ws` and of kcp's `kubectl ws`.
const enteredPrefix = "workspace.kcp.io/"

// follow has an entered workspace move along, if the server of root has another URL or authority now.
func follow(entered, before, now *clientcmdapi.Cluster) {
	if before == nil || now == nil {
		return
	}
	root := clusters.RequestPath(clusters.Root)
	if path, ok := strings.CutPrefix(entered.Server, strings.TrimSuffix(before.Server, root)); ok {
		entered.Server = strings.TrimSuffix(now.Server, root) + path
	}
	if bytes.Equal(entered.CertificateAuthorityData, before.CertificateAuthorityData) {
		entered.CertificateAuthorityData = now.CertificateAuthorityData
	}
}

// namedBy returns the shard's base URL and authority that a kubeconfig names, or nothing if Regent did not write it.
func namedBy(config *clientcmdapi.Config) (baseURL string, ca []byte) {
	if config == nil {
		return "", nil
	}
	cluster := config.Clusters[clusters.Root.String()]
	if cluster == nil {
		return "", nil
	}
	url, ok := strings.CutSuffix(cluster.Server, clusters.RequestPath(clusters.Root))
	if !ok {
		return "", nil
	}
	return url, cluster.CertificateAuthorityData
}

// rewriteKubeconfig returns a kubeconfig in which next's credentials stand wherever b's stood. Everything else is as it
// was.
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
