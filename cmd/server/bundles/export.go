// Package bundles exports logical clusters into files, and imports them as new workspaces, as one user of the API.
package bundles

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/cmd/server/workspaces"
	"github.com/regent-project/regent/pkg/server/bundle"
)

// pause is before a page is asked for again, or a condition looked at.
const pause = 200 * time.Millisecond

// ExportOptions say what is exported.
type ExportOptions struct {
	// Recursive: with all workspaces below, each with a bundle of its own at a revision of its own.
	Recursive bool
	// SealTo are recipients of age, for whom secrets are sealed. Unsealed: they are in plain text. With neither an
	// export with secrets fails.
	SealTo   []string
	Unsealed bool
	// Ago is for how long ago the workspace is exported as it was. etcd knows five minutes at least. Revision is
	// the revision of etcd at which it is exported. With neither it is exported as it is.
	Ago      time.Duration
	Revision int64
}

// Exported is what an export has written of one logical cluster.
type Exported struct {
	Path     string `json:"path"`
	Cluster  string `json:"cluster"`
	Revision int64  `json:"revision"`
	Objects  int    `json:"objects"`
	// Unreadable are the keys of what could not be decoded, and is not in the bundle.
	Unreadable []string `json:"unreadable,omitempty"`
	// Below are the Workspaces in it.
	Below []Below `json:"below,omitempty"`
}

// Below is a Workspace in an exported one.
type Below struct {
	Name string `json:"name"`
	// Left says why it was not exported. Empty: it was, or Recursive was not asked for. Lacks: it should have been.
	Left  string `json:"left,omitempty"`
	Lacks bool   `json:"lacks,omitempty"`
}

// Export writes the bundle of a workspace, and of those below it if the options say so, parents first. What is written
// is whole if it returns no error. A server that fails is asked again until ctx ends: any replica of the shard goes on
// where the last one stopped. A workspace below that is gone by then, or that the user may not export, is left out.
func Export(ctx context.Context, client *workspaces.Client, path logicalcluster.Path, to io.Writer, o ExportOptions) ([]*Exported, error) {
	began := time.Now()
	one := func(path logicalcluster.Path) (*Exported, error) {
		of := o
		if o.Ago > 0 { // the same moment for all
			of.Ago += time.Since(began)
		}
		return exportOne(ctx, client, path, to, of)
	}
	top, err := one(path)
	if err != nil {
		return nil, fmt.Errorf("export %s: %w", path, err)
	}
	all := []*Exported{top}
	for n := 0; o.Recursive && n < len(all); n++ {
		in := logicalcluster.NewPath(all[n].Path)
		for i := range all[n].Below {
			below := &all[n].Below[i]
			if below.Left != "" {
				continue
			}
			next, err := one(in.Join(below.Name))
			switch {
			case next == nil && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err)):
				below.Left, below.Lacks = err.Error(), true
			case err != nil:
				return nil, fmt.Errorf("export %s: %w", in.Join(below.Name), err)
			default:
				all = append(all, next)
			}
		}
	}
	return all, nil
}

// exportOne returns nil if nothing was written.
func exportOne(ctx context.Context, client *workspaces.Client, path logicalcluster.Path, to io.Writer, o ExportOptions) (*Exported, error) {
	e := &exporter{options: o}
	err := e.export(ctx, client, path, to)
	if e.writer == nil {
		return nil, err
	}
	return &e.out, err
}

// exporter exports one workspace.
type exporter struct {
	options ExportOptions
	client  rest.Interface
	writer  *bundle.Writer
	out     Exported
	last    string // key
	// wasThere: its LogicalCluster is in it.
	wasThere bool
}

func (e *exporter) export(ctx context.Context, client *workspaces.Client, path logicalcluster.Path, to io.Writer) error {
	of, err := discovery.NewDiscoveryClientForConfig(client.At(path))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	e.client = of.RESTClient()
	for more := true; more; {
		page, err := e.readPage(ctx)
		if err != nil {
			return err
		}
		if e.writer == nil {
			e.out.Path, e.out.Cluster, e.out.Revision = page.header.Path, page.header.Cluster, page.header.Revision
			if e.writer, err = bundle.NewWriter(to, page.header); err != nil {
				return err
			}
		}
		if page.header.Cluster != e.out.Cluster {
			return fmt.Errorf("another logical cluster, %s, has the path since the export began, and %s had it: export it again", page.header.Cluster, e.out.Cluster)
		}
		for _, o := range page.objects {
			if err := e.add(o); err != nil {
				return err
			}
		}
		more = page.more
	}
	if !e.wasThere {
		return errors.New("the workspace was not there yet")
	}
	return e.writer.Close()
}

func (e *exporter) add(o bundle.Object) error {
	e.last = o.Key
	e.wasThere = e.wasThere || o.Key == bundle.LogicalClusterKey
	isKey := bundle.CheckKey(o.Key) == nil
	if o.Unreadable != "" || !isKey {
		e.out.Unreadable = append(e.out.Unreadable, o.Key)
	}
	if !isKey {
		return nil
	}
	e.out.Objects++
	if strings.HasPrefix(o.Key, bundle.WorkspaceKeys) && o.Object != nil {
		var ws tenancyv1alpha1.Workspace
		if err := json.Unmarshal(o.Object, &ws); err != nil {
			return fmt.Errorf("%s cannot be read: %w", o.Key, err)
		}
		e.out.Below = append(e.out.Below, Below{Name: ws.Name, Left: leftOut(&ws)})
	}
	return e.writer.Add(o)
}

// leftOut says why a workspace cannot be exported; empty: it can.
func leftOut(ws *tenancyv1alpha1.Workspace) string {
	switch {
	case ws.DeletionTimestamp != nil:
		return "it is being deleted"
	case ws.Spec.Mount != nil:
		return "it is mounted, and its objects are elsewhere"
	case ws.Spec.Cluster == "":
		return "it has no logical cluster yet"
	}
	return ""
}

// page is what a shard answers.
type page struct {
	header  bundle.Header
	objects []bundle.Object
	more    bool
}

// readPage asks for the next page, again while nobody answers.
func (e *exporter) readPage(ctx context.Context) (page, error) {
	for {
		answer, err := e.request(ctx)
		if err == nil {
			var p page
			if p, err = parsePage(answer); err == nil {
				return p, nil
			}
		}
		if !IsPassing(err) {
			return page{}, err
		}
		select {
		case <-ctx.Done():
			return page{}, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}

func (e *exporter) request(ctx context.Context) ([]byte, error) {
	req := e.client.Get().AbsPath(bundle.Path)
	if e.writer != nil {
		req = req.Param("revision", strconv.FormatInt(e.out.Revision, 10)).Param("after", e.last)
	}
	switch {
	case e.writer != nil:
	case e.options.Revision > 0:
		req = req.Param("revision", strconv.FormatInt(e.options.Revision, 10))
	case e.options.Ago > 0:
		req = req.Param("ago", e.options.Ago.String())
	}
	for _, recipient := range e.options.SealTo {
		req = req.Param("sealTo", recipient)
	}
	if e.options.Unsealed {
		req = req.Param("unsealed", "true")
	}
	result := req.Do(ctx)
	if err := result.Error(); err != nil { // that of Raw does not say why
		return nil, err
	}
	return result.Raw()
}

// IsPassing reports whether what was asked may be answered later: not what the server has refused.
func IsPassing(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code >= 500 || code == 429
}

// parsePage reads an answer. One that was cut off has no end.
func parsePage(answer []byte) (p page, err error) {
	ended := false
	for line := range bytes.Lines(answer) {
		var l bundle.Line
		if err := json.Unmarshal(line, &l); err != nil {
			return p, fmt.Errorf("the answer of the server is no bundle: %w", err)
		}
		switch {
		case l.Header != nil:
			p.header = *l.Header
		case l.Page != nil:
			p.more, ended = l.Page.More, true
		case l.Object != nil:
			p.objects = append(p.objects, *l.Object)
		}
	}
	if !ended || p.header.Cluster == "" || p.more && len(p.objects) == 0 {
		return p, errors.New("the answer of the server ends too early")
	}
	return p, nil
}
