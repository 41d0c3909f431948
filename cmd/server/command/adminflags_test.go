package command

import (
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func TestAnAdministratorMayAskAReplicaWhileNoFrontRuns(t *testing.T) {
	kubeconfig := clientcmdapi.NewConfig()
	for context, path := range map[string]string{"root": "/clusters/root", "system:admin": "/clusters/system:admin", "bare": ""} {
		kubeconfig.Clusters[context] = &clientcmdapi.Cluster{Server: "https://front.example" + path}
		kubeconfig.Contexts[context] = &clientcmdapi.Context{Cluster: context}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, file); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ context, server, want string }{
		{"root", "", "https://front.example/clusters/root"},
		{"root", "https://10.0.0.1:6443", "https://10.0.0.1:6443/clusters/root"},
		{"root", "https://10.0.0.1:6443/", "https://10.0.0.1:6443/clusters/root"},
		{"system:admin", "https://[::1]:6443", "https://[::1]:6443/clusters/system:admin"},
		{"bare", "https://10.0.0.1", "https://10.0.0.1"},
	} {
		from := adminFlags{kubeconfig: file, context: tc.context, server: tc.server}
		config, err := from.config()
		if err != nil {
			t.Errorf("%+v: %v", tc, err)
		} else if config.Host != tc.want {
			t.Errorf("%+v: asks %s", tc, config.Host)
		}
	}
}
