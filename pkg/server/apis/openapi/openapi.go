// Package openapi holds the OpenAPI definitions of the served types. kubectl explain, client-side validation and
// server-side apply need them. `make generate` writes them, for the types that apis.Types returns, except for those
// that upstream's apiextensions-apiserver has.
package openapi

import (
	"fmt"
	"maps"
	"strings"

	upstream "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/runtime"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/cached"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Definitions returns those of all types that are served, and some more.
func Definitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	all := upstream.GetOpenAPIDefinitions(ref)
	maps.Copy(all, GetOpenAPIDefinitions(ref))
	describe(all)
	return all
}

// Metadata returns the schemas of what all objects have in common, which those of custom objects refer to.
func Metadata(scheme *runtime.Scheme) (map[string]*spec.Schema, error) {
	config := genericapiserver.DefaultOpenAPIV3Config(Definitions, openapinamer.NewDefinitionNamer(scheme))
	var names []string
	for name := range Definitions(func(string) spec.Ref { return spec.Ref{} }) {
		if strings.Contains(name, "apimachinery") {
			names = append(names, name)
		}
	}
	return builder3.BuildOpenAPIDefinitionsForResources(config, names...)
}

// Configure sets the OpenAPI definitions of the scheme's types in the server's configuration.
func Configure(config *genericapiserver.Config, scheme *runtime.Scheme) {
	namer := openapinamer.NewDefinitionNamer(scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(Definitions, namer)
	config.OpenAPIConfig.Info.Title = "Regent"
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(Definitions, namer)
	config.OpenAPIV3Config.Info.Title = "Regent"
}

// New returns the API server of a configuration. It makes the document of /openapi/v2 when somebody asks for it first,
// not when it starts: clients of our time ask for /openapi/v3, and a fifth of what a start computes was that document.
func New(completed genericapiserver.CompletedConfig, name string) (*genericapiserver.GenericAPIServer, error) {
	config := completed.OpenAPIConfig
	completed.OpenAPIConfig = nil // with it the server makes the document in PrepareRun
	api, err := completed.New(name, genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("cannot make the API server: %w", err)
	}
	service := handler.NewOpenAPIServiceLazy(cached.Once(cached.Func(func() (*spec.Swagger, string, error) {
		document, err := documentOf(api, config)
		return document, name, err // its identity: it never changes
	})))
	service.RegisterOpenAPIVersionedService("/openapi/v2", api.Handler.NonGoRestfulMux)
	return api, nil
}

// documentOf makes the document of all that the server has installed.
func documentOf(api *genericapiserver.GenericAPIServer, config *common.Config) (*spec.Swagger, error) {
	routes := restfuladapter.AdaptWebServices(api.Handler.GoRestfulContainer.RegisteredWebServices())
	document, err := builder.BuildOpenAPISpecFromRoutes(routes, config)
	if err != nil {
		return nil, fmt.Errorf("cannot describe what is served: %w", err)
	}
	document.Definitions = handler.PruneDefaults(document.Definitions)
	return document, nil
}
