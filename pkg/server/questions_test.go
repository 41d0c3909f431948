package server

import (
	"maps"
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/regent-project/regent/pkg/clusters"
)

// What is created and not stored needs no fence. The server says what it serves, so a question that stores its object
// is found here or among the samples.
func TestQuestionsWriteNothing(t *testing.T) {
	s := startFencedShard(t)
	ctx := clusters.With(t.Context(), "system:questions")
	accounts := s.current.Resource(corev1.SchemeGroupVersion.WithResource("serviceaccounts")).Namespace(aNamespace)
	account := &unstructured.Unstructured{Object: fromYAML("{apiVersion: v1, kind: ServiceAccount, metadata: {name: x}}")}
	if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	served := servedNames(t, s)
	for key, body := range questions {
		if !served[key] {
			t.Errorf("%s is a question here, and is not served", key)
			continue
		}
		version, name, _ := strings.Cut(key, " ")
		gv, err := schema.ParseGroupVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		was := s.keys(t)
		obj := &unstructured.Unstructured{Object: fromYAML(body)}
		resource, subresource, isPart := strings.Cut(name, "/")
		if isPart {
			obj.SetName("x")
			_, err = s.free.Resource(gv.WithResource(resource)).Namespace(aNamespace).Create(ctx, obj, metav1.CreateOptions{}, subresource)
		} else {
			_, err = s.free.Resource(gv.WithResource(resource)).Namespace(obj.GetNamespace()).Create(ctx, obj, metav1.CreateOptions{})
		}
		if err != nil {
			t.Errorf("%s: %v", key, err)
		}
		if now := s.keys(t); !maps.Equal(was, now) {
			t.Errorf("%s: etcd was written: it had %v, and has %v", key, was, now)
		}
	}
}

func servedNames(t *testing.T, s *fencedShard) map[string]bool {
	t.Helper()
	_, lists, err := s.discovery.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, list := range lists {
		for _, r := range list.APIResources {
			out[list.GroupVersion+" "+r.Name] = true
		}
	}
	return out
}

// kubeOf returns a client with a bearer token and no other credentials, for a logical cluster.
func (r *replica) kubeOf(t testing.TB, token string, cluster logicalcluster.Name) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(r.configOf(t, token, cluster))
	if err != nil {
		t.Fatal(err)
	}
	return client
}
