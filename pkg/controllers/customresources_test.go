package controllers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
)

// live is a server that has definitions, and counts how often it is asked.
type live struct {
	metadata.ResourceInterface
	items []metav1.PartialObjectMetadata
	lists int
}

// Resource implements metadata.Interface. There are no bindings.
func (l *live) Resource(gvr schema.GroupVersionResource) metadata.Getter {
	if gvr.Resource == "customresourcedefinitions" {
		return l
	}
	return &live{}
}

func (l *live) Namespace(string) metadata.ResourceInterface { return l }

func (l *live) List(_ context.Context, opts metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	l.lists++
	from := 0
	if opts.Continue != "" {
		if _, err := fmt.Sscan(opts.Continue, &from); err != nil {
			return nil, err
		}
	}
	out := &metav1.PartialObjectMetadataList{Items: l.items[from:]}
	if opts.Limit > 0 && int64(len(out.Items)) > opts.Limit {
		out.Items, out.Continue = out.Items[:opts.Limit], fmt.Sprint(from+int(opts.Limit))
	}
	return out, nil
}

// After a failover, the next definition in a cluster waits for this.
func TestWhetherCachesAreLateIsAskedTwiceHoweverManyDefinitionsThereAre(t *testing.T) {
	for _, many := range []int{0, 1, 50, 51, 500} {
		t.Run(fmt.Sprint(many), func(t *testing.T) {
			source, server := controllertest.NewSource[*apiextensionsv1.CustomResourceDefinition](), &live{}
			for n := range many {
				d := source.Set(controllertest.Definition("x1", "example.com", fmt.Sprintf("Thing%d", n), apiextensionsv1.NamespaceScoped))
				server.items = append(server.items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: d.Name, ResourceVersion: d.ResourceVersion}})
			}
			informers := controllers.Informers{
				Definitions: controllertest.Informer(t, source, controllers.DefinitionIndexers()),
				APIBindings: controllertest.Informer(t, controllertest.NewSource[*apisv1alpha2.APIBinding](), controllers.BindingIndexers()),
			}
			all, err := informers.LiveCustomResources(t.Context(), server, "x1")
			if err != nil || len(all) != many || server.lists > 2 {
				t.Errorf("%d resources with %d lists: %v", len(all), server.lists, err)
			}
			if many == 0 {
				return
			}
			last := &server.items[many-1]
			last.ResourceVersion = "100000"
			if _, err := informers.LiveCustomResources(t.Context(), server, "x1"); err == nil || !strings.Contains(err.Error(), last.Name) {
				t.Errorf("the cache has not got the last change: %v", err)
			}
		})
	}
}
