package conformance

import (
	"fmt"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// createWorkspace creates a workspace below root, waits until it is Ready, and returns its URL and a kubeconfig whose
// only server it is.
func createWorkspace(t *testing.T, admin, name string) (url, kubeconfig string) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(admin)
	if err != nil {
		t.Fatal(err)
	}
	rest, err := clientcmd.NewDefaultClientConfig(*config, &clientcmd.ConfigOverrides{CurrentContext: "root"}).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(rest)
	if err != nil {
		t.Fatal(err)
	}
	workspaces := client.Resource(schema.GroupVersionResource{Group: "tenancy.kcp.io", Version: "v1alpha1", Resource: "workspaces"})
	workspace := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": map[string]any{"name": name},
	}}
	if _, err := workspaces.Create(t.Context(), workspace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the workspace is Ready", func() error {
		got, err := workspaces.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if phase, _, _ := unstructured.NestedString(got.Object, "status", "phase"); phase != "Ready" {
			return fmt.Errorf("phase %q", phase)
		}
		url, _, err = unstructured.NestedString(got.Object, "spec", "URL")
		return err
	})

	config.CurrentContext = "root"
	config.Clusters[config.Contexts["root"].Cluster].Server = url
	if err := clientcmdapi.MinifyConfig(config); err != nil {
		t.Fatal(err)
	}
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return url, kubeconfig
}
