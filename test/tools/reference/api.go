package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/server/apis"
	"github.com/regent-project/regent/pkg/server/apis/core"
	"github.com/regent-project/regent/pkg/server/apis/openapi"
	"github.com/regent-project/regent/pkg/server/apis/resource"
	"github.com/regent-project/regent/pkg/server/apis/review"
	"github.com/regent-project/regent/pkg/server/storage"
)

const apiIntro = `# API

## Resources

Each logical cluster serves these below ` + "`/clusters/<name or path>/`" + `. What is stored is in the etcd of the shard that has the cluster. ` + "`view`" + ` and the other
[built-in roles](../ACCESS.md#what-every-cluster-has) are read like stored ones and stored nowhere. [ACCESS.md](../ACCESS.md#who-may-do-what)
says who may do what.

| resource | version | kind | scope | short names | verbs | stored |
|---|---|---|---|---|---|---|
`

func apiPage(code *source, _ string) (string, error) {
	served, err := discover()
	if err != nil {
		return "", err
	}
	stored := map[schema.GroupVersionResource]bool{}
	for _, r := range apis.Resources() {
		stored[r.GVR] = true
	}
	var page strings.Builder
	page.WriteString(generated + apiIntro)
	for _, r := range served {
		fmt.Fprintf(&page, "| `%s` | `%s` | %s | %s | %s | %s | %s |\n", r.Name, schema.GroupVersion{Group: r.Group, Version: r.Version},
			r.Kind, scope(r), labels(r.ShortNames), strings.Join(r.Verbs, ", "), where(r, stored))
		delete(stored, gvr(r))
	}
	if len(stored) > 0 {
		return "", fmt.Errorf("%v are stored and not served", stored)
	}
	paths, err := pathsTable(code)
	return page.String() + paths, err
}

func gvr(r metav1.APIResource) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Name}
}

func scope(r metav1.APIResource) string {
	if r.Namespaced {
		return "namespace"
	}
	return "cluster"
}

// where says where a resource is stored.
func where(r metav1.APIResource, stored map[schema.GroupVersionResource]bool) string {
	switch {
	case strings.Contains(r.Name, "/") && !slices.Equal(r.Verbs, []string{"create"}):
		return "with its resource"
	case slices.Equal(r.Verbs, []string{"create"}):
		return "no: the answer is all"
	case stored[gvr(r)]:
		return "yes"
	}
	return "as another version of its objects"
}

// discover returns all that a shard serves, as clients discover it.
func discover() ([]metav1.APIResource, error) {
	handler, err := shard()
	if err != nil {
		return nil, err
	}
	var groups metav1.APIGroupList
	if err := get(handler, "/apis", &groups); err != nil {
		return nil, err
	}
	paths := []string{"/api/v1"}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			paths = append(paths, "/apis/"+v.GroupVersion)
		}
	}
	var out []metav1.APIResource
	for _, path := range paths {
		var list metav1.APIResourceList
		if err := get(handler, path, &list); err != nil {
			return nil, err
		}
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			r.Group, r.Version = gv.Group, gv.Version // of a subresource they are those of its kind
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b metav1.APIResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Name, b.Name))
	})
	return out, nil
}

// get asks a handler, and decodes its answer.
func get(handler http.Handler, path string, into any) error {
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
	if answer.Code != http.StatusOK {
		return fmt.Errorf("%s is answered with %d %s", path, answer.Code, answer.Body)
	}
	return json.Unmarshal(answer.Body.Bytes(), into)
}

// shard returns the handler of an API server with all that is served. It answers discovery, and has no etcd for
// anything else.
func shard() (http.Handler, error) {
	client, err := storage.NewClient(storage.Config{Transport: storagebackend.TransportConfig{ServerList: []string{"http://127.0.0.1:1"}}, Prefix: "/registry"})
	if err != nil {
		return nil, err
	}
	stored, err := apis.Open(apis.NewRESTOptionsGetter(client), nil)
	if err != nil {
		return nil, err
	}
	config := genericapiserver.NewConfig(apis.Codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.ExternalAddress = "127.0.0.1:0"
	config.LoopbackClientConfig = &rest.Config{}
	config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	openapi.Configure(config, apis.Scheme)
	server, err := config.Complete(nil).New("reference", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	virtual := append(review.Access{}.Reviews(), core.Tokens{}.Subresource(), review.Tokens{}.Reviews(), review.Self())
	if err := stored.Install(server, resource.Shards{}, virtual...); err != nil {
		return nil, err
	}
	return server.Handler, nil
}
