package admission_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "k8s.io/apiserver/pkg/admission"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/apis/admission"
)

var (
	active      = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}
	terminating = &corev1.Namespace{Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}}
)

// namespacesByName has namespaces by cluster and name.
type namespacesByName struct {
	cached, stored map[string]*corev1.Namespace
	leaving        bool
	fails          error
}

func (k namespacesByName) Cached(cluster logicalcluster.Name, name string) (*corev1.Namespace, bool) {
	ns, ok := k.cached[cluster.String()+"/"+name]
	return ns, ok
}

func (k namespacesByName) Live(_ context.Context, cluster logicalcluster.Name, name string) (*corev1.Namespace, error) {
	if k.fails != nil {
		return nil, k.fails
	}
	if ns, ok := k.stored[cluster.String()+"/"+name]; ok {
		return ns, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
}

func (k namespacesByName) Leaving(context.Context, logicalcluster.Name) (bool, error) {
	return k.leaving, k.fails
}

func attributes(op upstream.Operation, resource, namespace, name string) upstream.Attributes {
	gvr := corev1.SchemeGroupVersion.WithResource(resource)
	return upstream.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, namespace, name, gvr, "", op, nil, false, nil)
}

func TestCreationsNeedALivingNamespaceOfTheirCluster(t *testing.T) {
	namespaces := namespacesByName{
		cached: map[string]*corev1.Namespace{"aa/cached": active, "aa/leaving": terminating, "aa/default": terminating},
		stored: map[string]*corev1.Namespace{"aa/new": active, "aa/newly-leaving": terminating, "bb/other": active},
	}
	for _, c := range []struct {
		name, namespace string
		refused         func(error) bool
	}{
		{"known", "cached", nil},
		{"made through another replica", "new", nil},
		{"implied, without an object", "kube-system", nil},
		{"implied, but terminating with its cluster", "default", apierrors.IsForbidden},
		{"terminating", "leaving", apierrors.IsForbidden},
		{"terminating in storage", "newly-leaving", apierrors.IsForbidden},
		{"of another cluster", "other", apierrors.IsNotFound},
		{"missing", "missing", apierrors.IsNotFound},
	} {
		t.Run(c.name, func(t *testing.T) {
			plugin := &admission.NamespaceLifecycle{Namespaces: namespaces}
			err := plugin.Validate(clusters.With(t.Context(), "aa"), attributes(upstream.Create, "configmaps", c.namespace, "x"), nil)
			if c.refused == nil && err != nil || c.refused != nil && !c.refused(err) {
				t.Errorf("got %v", err)
			}
			if apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				t.Errorf("the refusal has no cause: %#v", err)
			}
		})
	}
}

func TestImpliedNamespacesGoWithTheirClusterOnly(t *testing.T) {
	for _, c := range []struct {
		name      string
		namespace string
		known     namespacesByName
		refused   func(error) bool
	}{
		{"of a cluster that stays", "default", namespacesByName{}, apierrors.IsForbidden},
		{"of a cluster that leaves", "kube-system", namespacesByName{leaving: true}, nil},
		{"of a cluster that cannot be read", "default", namespacesByName{fails: errors.New("no answer")}, apierrors.IsInternalError},
		{"any other", "other", namespacesByName{}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			plugin := &admission.NamespaceLifecycle{Namespaces: c.known}
			err := plugin.Validate(clusters.With(t.Context(), "aa"), attributes(upstream.Delete, "namespaces", c.namespace, c.namespace), nil)
			if c.refused == nil && err != nil || c.refused != nil && !c.refused(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestRefusesWithoutACluster(t *testing.T) {
	plugin := &admission.NamespaceLifecycle{Namespaces: namespacesByName{}}
	err := plugin.Validate(t.Context(), attributes(upstream.Create, "configmaps", metav1.NamespaceDefault, "x"), nil)
	if !apierrors.IsForbidden(err) {
		t.Errorf("got %v, want Forbidden", err)
	}
}
