package regenttest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// root is the path of the logical cluster below which all workspaces are.
const root = "root"

var workspaces = schema.GroupVersionResource{Group: "tenancy.kcp.io", Version: "v1alpha1", Resource: "workspaces"}

// Config is the administrator's, for a logical cluster: by its path ("root", "root:a") or name, or a system cluster
// ("system:admin", with the Lease of the shard's election). It has no rate limit. Whoever changes it has a copy.
func (s *Server) Config(cluster string) *rest.Config { return s.config(s.url(), cluster) }

func (s *Server) kubeconfig() string { return filepath.Join(s.directory, root, "admin.kubeconfig") }

// Workspace is a logical cluster that a test may use.
type Workspace struct {
	// Path is where it is, as in root:a. It is in the URLs of users.
	Path string
	// Cluster is the name of its logical cluster, which fenced leaders want to know.
	Cluster string
	// Config is the administrator's. Whoever changes it takes a copy (rest.CopyConfig).
	Config *rest.Config
}

// Workspace makes a workspace below root, and returns when it is ready. A name with colons is in another one: the
// parent of "a:b" is workspace "a". It is deleted with the test, unless the server ends then, too.
func (s *Server) Workspace(t testing.TB, name string) *Workspace {
	t.Helper()
	w := &Workspace{Path: root + ":" + strings.TrimPrefix(name, root+":")}
	w.Config = s.Config(w.Path)
	at := strings.LastIndexByte(w.Path, ':')
	client, err := dynamic.NewForConfig(s.Config(w.Path[:at]))
	must(t, err)
	parent, own := client.Resource(workspaces), w.Path[at+1:]
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, create(ctx, parent, own))
	if t != s.owner {
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), answerPatience)
			defer cancel()
			if err := parent.Delete(ctx, own, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Logf("regenttest: workspace %s is left behind: %v", w.Path, err)
			}
		})
	}
	must(t, until(ctx, "workspace "+w.Path+" is ready", func(ctx context.Context) error {
		object, err := get(ctx, parent, own)
		if err != nil {
			return err
		}
		phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
		w.Cluster, _, _ = unstructured.NestedString(object.Object, "spec", "cluster")
		if phase != "Ready" {
			return fmt.Errorf("its phase is %q", phase)
		}
		return nil
	}))
	return w
}

// create creates a Workspace. One that is being deleted is waited for.
func create(ctx context.Context, in dynamic.ResourceInterface, name string) error {
	return until(ctx, "workspace "+name+" is created", func(ctx context.Context) error {
		_, err := in.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": workspaces.GroupVersion().String(), "kind": "Workspace", "metadata": map[string]any{"name": name},
		}}, metav1.CreateOptions{})
		switch {
		case apierrors.IsAlreadyExists(err):
			was, err := get(ctx, in, name)
			if err == nil && was.GetDeletionTimestamp() == nil {
				return &final{fmt.Errorf("there is a workspace %s already: give each test's workspace a name of its own", name)}
			}
			return fmt.Errorf("the workspace of that name is being deleted: %w", errors.Join(err))
		case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
			return &final{fmt.Errorf("no workspace can be called %q: %w", name, err)}
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			return &final{fmt.Errorf("there is no workspace in which %q could be: make it first: %w", name, err)}
		}
		return err
	})
}

func get(ctx context.Context, in dynamic.ResourceInterface, name string) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return in.Get(ctx, name, metav1.GetOptions{})
}
