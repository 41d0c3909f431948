package server

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/access"
	"github.com/regent-project/regent/pkg/server/apis"
	apisadmission "github.com/regent-project/regent/pkg/server/apis/admission"
	"github.com/regent-project/regent/pkg/server/apis/openapi"
	"github.com/regent-project/regent/pkg/server/custom"
	"github.com/regent-project/regent/pkg/server/identity"
	"github.com/regent-project/regent/pkg/server/routing"
)

// newCustoms returns what serves custom resources.
func (s *Server) newCustoms(store *store, c *genericapiserver.Config) (*custom.Server, error) {
	metadata, err := openapi.Metadata(apis.Scheme)
	if err != nil {
		return nil, fmt.Errorf("schemas of metadata: %w", err)
	}
	return custom.NewServer(store.customs, custom.HandlerConfig{
		Admission: c.AdmissionControl, Authorizer: c.Authorization.Authorizer, Schemas: metadata,
		Internal:       identity.IsOwnContext,
		RequestTimeout: c.RequestTimeout, MinRequestTimeout: time.Duration(c.MinRequestTimeout) * time.Second, MaxRequestBytes: c.MaxRequestBodyBytes,
		Webhooks: s.cfg.ConversionWebhooks,
	}), nil
}

// resourceIn returns a function that finds the resource of a kind in the logical cluster of a context.
func resourceIn(informers controllers.Informers) func(context.Context, schema.GroupKind) (schema.GroupVersionResource, bool, bool) {
	return func(ctx context.Context, kind schema.GroupKind) (schema.GroupVersionResource, bool, bool) {
		if resource, namespaced, ok := apis.ResourceOf(kind); ok {
			return resource, namespaced, true
		}
		cluster, _ := clusters.From(ctx)
		defined, ok := informers.CustomResource(cluster, kind)
		return defined.GVR, defined.Namespaced, ok
	}
}

// bindings returns the admission of APIBindings.
func (s *Server) bindings(caches *caches, may authorizer.Authorizer) *apisadmission.Bindings {
	here := access.Elsewhere(fromOutside(may))
	return &apisadmission.Bindings{
		Leader: identity.LeaderUser,
		Find:   caches.find,
		Allowed: func(ctx context.Context, in apisadmission.Place, attributes authorizer.AttributesRecord) (bool, error) {
			if in.Shard == "" {
				return here(ctx, in.Cluster, attributes)
			}
			allowed, err := access.Elsewhere(caches.offers.Authorizer(in.Shard))(ctx, in.Cluster, attributes)
			if err != nil {
				return false, routing.NewUnavailable(err.Error())
			}
			return allowed, nil
		},
	}
}

// fromOutside returns an authorizer that does not ask whether users may enter a logical cluster.
func fromOutside(may authorizer.Authorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		return may.Authorize(access.FromOutside(ctx), a)
	})
}
