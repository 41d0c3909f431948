// Package openapi holds the OpenAPI definitions of the served types. kubectl explain, client-side validation and server-side
// apply need them. `make generate` writes them, for the types that apis.Types returns.
package openapi

import (
	"k8s.io/apimachinery/pkg/runtime"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// Configure sets the OpenAPI definitions of the scheme's types in the server's configuration.
func Configure(config *genericapiserver.Config, scheme *runtime.Scheme) {
	namer := openapinamer.NewDefinitionNamer(scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(GetOpenAPIDefinitions, namer)
	config.OpenAPIConfig.Info.Title = "Regent"
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(GetOpenAPIDefinitions, namer)
	config.OpenAPIV3Config.Info.Title = "Regent"
}
