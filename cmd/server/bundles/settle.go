package bundles

import (
	"context"
	"fmt"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// patience is for how long a definition may take to be served, and a binding to be bound. Each takes a second at most,
// unless it never will be.
const patience = 15 * time.Second

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	bindings    = schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha2", Resource: "apibindings"}
)

// settle waits, after the phase of definitions and that of bindings, until what they define is served. What is not in
// time is refused: its objects will be, too.
func (i *importer) settle(ctx context.Context, d *destination, phase int) error {
	what, key, ready := definitions, "apiextensions.k8s.io/customresourcedefinitions/", isEstablished
	switch {
	case phases[phase] == nil:
		return nil
	case phases[phase](definitions.GroupResource().String()):
	case phases[phase](bindings.GroupResource().String()):
		what, key, ready = bindings, "apis.kcp.io/apibindings/", isBound
	default:
		return nil
	}
	defer d.api.mapper.Reset()
	for deadline := time.Now().Add(patience); ; {
		late, err := d.api.unready(ctx, what, ready)
		// it was so before
		maps.DeleteFunc(late, func(name, _ string) bool { return i.only != nil && !i.only[key+name] })
		if err != nil || len(late) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			for name, why := range late {
				i.note(&i.report.Refused, d, key+name, why)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// unready returns which objects are not ready, and why.
func (a *api) unready(ctx context.Context, what schema.GroupVersionResource, ready func(*unstructured.Unstructured) string) (late map[string]string, err error) {
	var all *unstructured.UnstructuredList
	err = patiently(ctx, func() error {
		all, err = a.client.Resource(what).List(ctx, metav1.ListOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", what.Resource, err)
	}
	late = map[string]string{}
	for n := range all.Items {
		if why := ready(&all.Items[n]); why != "" {
			late[all.Items[n].GetName()] = why
		}
	}
	return late, nil
}

// isEstablished says why a definition is not served; empty: it is.
func isEstablished(crd *unstructured.Unstructured) string {
	return unmet(crd, "it is not served", func(kind, status string) bool { return kind == "Established" && status == "True" })
}

// isBound says why a binding is not bound; empty: it is.
func isBound(binding *unstructured.Unstructured) string {
	if phase, _, _ := unstructured.NestedString(binding.Object, "status", "phase"); phase == "Bound" {
		return ""
	}
	return unmet(binding, "it is not bound", func(string, string) bool { return false })
}

// unmet returns nothing if one condition is enough, and otherwise the messages of those that are not true.
func unmet(obj *unstructured.Unstructured, why string, enough func(kind, status string) bool) string {
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, one := range conditions {
		c, _ := one.(map[string]any)
		kind, _ := c["type"].(string)
		status, _ := c["status"].(string)
		if enough(kind, status) {
			return ""
		}
		if message, _ := c["message"].(string); status != "True" && message != "" {
			why += ": " + message
		}
	}
	return why
}
