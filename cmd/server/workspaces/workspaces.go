package workspaces

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/clusters"
)

// pause is between two looks at what a controller does. Most workspaces are ready within 100 ms.
const pause = 50 * time.Millisecond

// Client reads and writes workspaces as one user. It is for any number of goroutines.
type Client struct {
	config *rest.Config
	on     Place
}

// NewClient returns a Client of the server that a place is on.
func NewClient(config *rest.Config, on Place) *Client {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{} // the error says the same
	return &Client{config, on}
}

// At returns the configuration of clients of a workspace.
func (c *Client) At(path logicalcluster.Path) *rest.Config {
	config := rest.CopyConfig(c.config)
	config.Host = c.on.At(path).URL()
	return config
}

func (c *Client) in(path logicalcluster.Path) (dynamic.ResourceInterface, error) {
	client, err := dynamic.NewForConfig(c.At(path))
	if err != nil {
		return nil, fmt.Errorf("cannot make a client of %s: %w", path, err)
	}
	return client.Resource(tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces")), nil
}

// CheckEntry returns an error if there is no such workspace, or if the user may not enter it.
func (c *Client) CheckEntry(ctx context.Context, path logicalcluster.Path) error {
	client, err := discovery.NewDiscoveryClientForConfig(c.At(path))
	if err != nil {
		return fmt.Errorf("cannot make a client of %s: %w", path, err)
	}
	if err := client.RESTClient().Get().AbsPath("/api").Do(ctx).Error(); err != nil {
		return fmt.Errorf("cannot enter %s: %w", path, err)
	}
	return nil
}

// Listed is a workspace, and what the server's table says of it.
type Listed struct {
	tenancyv1alpha1.Workspace
	// Phase is what kubectl shows: the workspace's, or that its shard does not answer. Shard has its logical
	// cluster.
	Phase, Shard string
}

// IsOnLoneShard reports whether there was no other shard when the workspace got its own.
func (l *Listed) IsOnLoneShard() bool { return l.Labels[clusters.ShardLabel] == "" }

// List returns the workspaces in a workspace, by name.
func (c *Client) List(ctx context.Context, path logicalcluster.Path) ([]Listed, error) {
	client, err := discovery.NewDiscoveryClientForConfig(c.At(path))
	if err != nil {
		return nil, fmt.Errorf("cannot make a client of %s: %w", path, err)
	}
	result := client.RESTClient().Get().AbsPath("/apis", tenancyv1alpha1.SchemeGroupVersion.String(), "workspaces").
		SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").Param("includeObject", string(metav1.IncludeObject)).Do(ctx)
	if err := result.Error(); err != nil { // that of Raw does not say why
		return nil, fmt.Errorf("cannot list the workspaces in %s: %w", path, err)
	}
	answer, err := result.Raw()
	if err != nil {
		return nil, fmt.Errorf("cannot list the workspaces in %s: %w", path, err)
	}
	table := &metav1.Table{}
	if err := json.Unmarshal(answer, table); err != nil {
		return nil, fmt.Errorf("the workspaces in %s cannot be read: %w", path, err)
	}
	out := make([]Listed, len(table.Rows))
	for i, row := range table.Rows {
		if err := json.Unmarshal(row.Object.Raw, &out[i].Workspace); err != nil {
			return nil, fmt.Errorf("a workspace in %s cannot be read: %w", path, err)
		}
		out[i].Phase, out[i].Shard = cell(table, row, "Phase"), cell(table, row, "Shard")
	}
	return out, nil
}

// cell returns the text in a column of a table, and nothing if there is no such column.
func cell(table *metav1.Table, row metav1.TableRow, column string) string {
	for i, header := range table.ColumnDefinitions {
		if header.Name == column && i < len(row.Cells) {
			return fmt.Sprint(row.Cells[i])
		}
	}
	return ""
}

// Create makes a workspace in another one. ErrExists: there is one of this name.
func (c *Client) Create(ctx context.Context, parent logicalcluster.Path, name string) error {
	client, err := c.in(parent)
	if err != nil {
		return err
	}
	made := &unstructured.Unstructured{}
	made.SetGroupVersionKind(tenancyv1alpha1.SchemeGroupVersion.WithKind("Workspace"))
	made.SetName(name)
	_, err = client.Create(ctx, made, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return ErrExists
	}
	if err != nil {
		return fmt.Errorf("cannot create workspace %s in %s: %w", name, parent, err)
	}
	return nil
}

// ErrExists is the error of Create if there is such a workspace already.
var ErrExists = errors.New("there is a workspace of this name already")

// WaitReady waits until a workspace can be used, and returns it. If ctx ends first, the error says what it waits for.
func (c *Client) WaitReady(ctx context.Context, parent logicalcluster.Path, name string) (*tenancyv1alpha1.Workspace, error) {
	var last *tenancyv1alpha1.Workspace
	err := c.poll(ctx, parent, name, func(w *tenancyv1alpha1.Workspace) bool {
		last = w
		return w != nil && w.Status.Phase == corev1alpha1.LogicalClusterPhaseReady
	})
	if err != nil && last != nil {
		err = fmt.Errorf("workspace %s is %s, and not ready: %s: %w", parent.Join(name), last.Status.Phase, waitsFor(last), err)
	}
	return last, err
}

// waitsFor returns the first condition that is not met.
func waitsFor(w *tenancyv1alpha1.Workspace) string {
	for _, condition := range w.Status.Conditions {
		if condition.Status != "True" {
			return fmt.Sprintf("%s: %s", condition.Type, condition.Message)
		}
	}
	return "see kubectl get workspace " + w.Name + " -o yaml"
}

// Delete deletes a workspace, and all that is in it.
func (c *Client) Delete(ctx context.Context, parent logicalcluster.Path, name string) error {
	client, err := c.in(parent)
	if err != nil {
		return err
	}
	if err := client.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("cannot delete workspace %s in %s: %w", name, parent, err)
	}
	return nil
}

// WaitGone waits until there is no such workspace any more.
func (c *Client) WaitGone(ctx context.Context, parent logicalcluster.Path, name string) error {
	err := c.poll(ctx, parent, name, func(w *tenancyv1alpha1.Workspace) bool { return w == nil })
	if err != nil {
		return fmt.Errorf("workspace %s is being deleted, and not gone yet: %w", parent.Join(name), err)
	}
	return nil
}

// poll looks at a workspace until done, which gets nil if there is none. What fails is tried again until ctx ends, as
// the leader or the server may be changing.
func (c *Client) poll(ctx context.Context, parent logicalcluster.Path, name string, done func(*tenancyv1alpha1.Workspace) bool) error {
	client, err := c.in(parent)
	if err != nil {
		return err
	}
	for {
		found, fault := client.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(fault):
			if done(nil) {
				return nil
			}
		case fault == nil:
			w := &tenancyv1alpha1.Workspace{}
			if err := decode(found, w); err != nil {
				return err
			}
			if done(w) {
				return nil
			}
		case apierrors.IsForbidden(fault), apierrors.IsUnauthorized(fault):
			return fault
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), fault)
		case <-time.After(pause):
		}
	}
}

func decode(from *unstructured.Unstructured, to *tenancyv1alpha1.Workspace) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(from.Object, to); err != nil {
		return fmt.Errorf("the server shows a Workspace that cannot be read: %w", err)
	}
	return nil
}
