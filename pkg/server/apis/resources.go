// Package apis serves the resources that the packages of the API groups describe. Each group has a package of its own,
// with its types, defaults, validation and tables.
//
// The server works with the published Go types, and stores them. There are no internal types, and no conversions except
// those of events.k8s.io.
package apis

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/regent-project/regent/pkg/server/apis/apiextensions"
	"github.com/regent-project/regent/pkg/server/apis/coordination"
	"github.com/regent-project/regent/pkg/server/apis/core"
	"github.com/regent-project/regent/pkg/server/apis/kcpapis"
	"github.com/regent-project/regent/pkg/server/apis/kcpcore"
	"github.com/regent-project/regent/pkg/server/apis/rbac"
	"github.com/regent-project/regent/pkg/server/apis/resource"
	"github.com/regent-project/regent/pkg/server/apis/review"
	"github.com/regent-project/regent/pkg/server/apis/tenancy"
	"github.com/regent-project/regent/pkg/server/storage"
)

// described returns all resources that are served.
func described() []resource.Described {
	return slices.Concat(core.Resources, coordination.Resources, rbac.Resources, apiextensions.Resources, tenancy.Resources, kcpcore.Resources, kcpapis.Resources)
}

// virtualKinds returns the types of what is served and not stored.
func virtualKinds() []resource.Kinds { return append(slices.Clone(review.Kinds), core.TokenKinds) }

// Resources returns all resources that the shard stores, each once.
func Resources() []resource.Resource {
	var out []resource.Resource
	for _, d := range described() {
		out = append(out, d.Resource())
	}
	return out
}

// BuiltIn reports whether the server itself serves an API group.
func BuiltIn(group string) bool { return Scheme.IsGroupRegistered(group) }

// ResourceOf returns the resource that a kind is of, in the version that is stored, and whether its objects are in
// namespaces.
func ResourceOf(kind schema.GroupKind) (resource schema.GroupVersionResource, namespaced, ok bool) {
	for _, r := range Resources() {
		if r.GVR.Group == kind.Group && r.Kind == kind.Kind {
			return r.GVR, r.Namespaced, true
		}
	}
	return schema.GroupVersionResource{}, false, false
}

// Types returns an empty value of each type that clients send or get: objects and lists of all API versions.
func Types() []runtime.Object {
	var out []runtime.Object
	for _, d := range described() {
		out = append(out, d.Types()...)
	}
	for _, k := range virtualKinds() {
		out = append(out, k.Objects...)
	}
	return out
}

// NewRESTOptionsGetter returns a getter of the storage of all served resources.
func NewRESTOptionsGetter(client *storage.Client) generic.RESTOptionsGetter {
	return storage.NewRESTOptionsGetter(client, func(name schema.GroupResource) (storage.Encoding, error) {
		for _, d := range described() {
			if d.Resource().GVR.GroupResource() == name {
				return d.Encoding(storedCodecs{Codecs}), nil
			}
		}
		return storage.Encoding{}, fmt.Errorf("no package of an API group describes %s", name)
	})
}
