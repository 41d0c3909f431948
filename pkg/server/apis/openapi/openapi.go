// Package openapi holds the OpenAPI definitions of the served types. kubectl explain, client-side validation and server-side
// apply need them. `make generate` writes them, for the types that apis.Types returns.
package openapi

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Metadata returns the schemas of what all objects have in common, which those of custom objects refer to.
func Metadata(scheme *runtime.Scheme) (map[string]*spec.Schema, error) {
	config := genericapiserver.DefaultOpenAPIV3Config(GetOpenAPIDefinitions, openapinamer.NewDefinitionNamer(scheme))
	var names []string
	for name := range GetOpenAPIDefinitions(func(string) spec.Ref { return spec.Ref{} }) {
		if strings.Contains(name, "apimachinery") {
			names = append(names, name)
		}
	}
	return builder3.BuildOpenAPIDefinitionsForResources(config, names...)
}

// Configure sets the OpenAPI definitions of the scheme's types in the server's configuration.
func Configure(config *genericapiserver.Config, scheme *runtime.Scheme) {
	namer := openapinamer.NewDefinitionNamer(scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(GetOpenAPIDefinitions, namer)
	config.OpenAPIConfig.Info.Title = "Regent"
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(GetOpenAPIDefinitions, namer)
	config.OpenAPIV3Config.Info.Title = "Regent"
}
