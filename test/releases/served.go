package releases

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/clusters"
)

// Served is what a replica serves: each object, in each version.
type Served []Object

// Object is one in one version, as JSON.
type Object struct {
	Cluster, Version, Resource string
	Namespaced                 bool           `json:",omitempty"`
	Object                     map[string]any // as it is served
}

// Name is the object's, with its namespace.
func (o Object) Name() string {
	meta := o.meta()
	if namespace, _ := meta["namespace"].(string); namespace != "" {
		return fmt.Sprintf("%s/%s", namespace, meta["name"])
	}
	return fmt.Sprint(meta["name"])
}

// UID is the object's, the same in each version.
func (o Object) UID() string { return fmt.Sprint(o.meta()["uid"]) }

func (o Object) meta() map[string]any {
	meta, _ := o.Object["metadata"].(map[string]any)
	return meta
}

// String names the object, among all that is served.
func (o Object) String() string {
	return strings.Join([]string{o.Cluster, o.Version, o.Resource, o.Name()}, " ")
}

// GVR is the resource that the object is of.
func (o Object) GVR() schema.GroupVersionResource {
	gv, err := schema.ParseGroupVersion(o.Version)
	if err != nil {
		panic(err) // a server has served it
	}
	return gv.WithResource(o.Resource)
}

// Of returns the client of the object.
func (o Object) Of(client dynamic.Interface) dynamic.ResourceInterface {
	if namespace, _ := o.meta()["namespace"].(string); o.Namespaced {
		return client.Resource(o.GVR()).Namespace(namespace)
	}
	return client.Resource(o.GVR())
}

var logicalClusters = schema.GroupVersionResource{Group: "core.kcp.io", Version: "v1alpha1", Resource: "logicalclusters"}

// Serves returns all that a replica serves: of each logical cluster, the objects of all resources that its discovery
// names. empty are the resources without an object in any cluster. config is an administrator's.
func Serves(ctx context.Context, config func(cluster string) *rest.Config) (all Served, empty []string, err error) {
	everywhere, err := dynamic.NewForConfig(config(clusters.Wildcard.String()))
	if err != nil {
		return nil, nil, err
	}
	list, err := everywhere.Resource(logicalClusters).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("cannot list logical clusters: %w", err)
	}
	names := []string{clusters.SystemAdmin.String(), clusters.BoundSchemas.String()}
	for _, c := range list.Items {
		names = append(names, c.GetAnnotations()["kcp.io/cluster"])
	}
	slices.Sort(names)
	filled := map[string]bool{}
	for _, cluster := range slices.Compact(names) {
		if err := all.add(ctx, config(cluster), cluster, filled); err != nil {
			return nil, nil, err
		}
	}
	for resource, is := range filled {
		if !is {
			empty = append(empty, resource)
		}
	}
	slices.Sort(empty)
	return all, empty, nil
}

// add adds what is in a cluster.
func (s *Served) add(ctx context.Context, config *rest.Config, cluster string, filled map[string]bool) error {
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	_, resources, err := disco.ServerGroupsAndResources()
	if err != nil {
		return fmt.Errorf("discovery of cluster %s: %w", cluster, err)
	}
	for _, of := range resources {
		gv, err := schema.ParseGroupVersion(of.GroupVersion)
		if err != nil {
			return err
		}
		for _, r := range of.APIResources {
			if !slices.Contains(r.Verbs, "list") {
				continue
			}
			list, err := client.Resource(gv.WithResource(r.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return fmt.Errorf("cannot list %s %s of cluster %s: %w", of.GroupVersion, r.Name, cluster, err)
			}
			name := of.GroupVersion + " " + r.Name
			filled[name] = filled[name] || len(list.Items) > 0
			for _, item := range list.Items {
				*s = append(*s, Object{Cluster: cluster, Version: of.GroupVersion, Resource: r.Name, Namespaced: r.Namespaced, Object: item.Object})
			}
		}
	}
	return nil
}

// Terms returns what a replica tells of the shard's terms, by the answer of /regent/v1/terms.
func Terms(answer string) (terms []map[string]any, err error) {
	var told struct{ Terms []map[string]any }
	if err := json.Unmarshal([]byte(answer), &told); err != nil {
		return nil, fmt.Errorf("what a replica tells of terms: %w", err)
	}
	if len(told.Terms) == 0 {
		return nil, fmt.Errorf("a replica tells of no terms: %s", answer)
	}
	return told.Terms, nil
}
