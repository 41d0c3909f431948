// Package openapi holds the OpenAPI definitions of what the shard serves: explain, client-side validation and server-side
// apply need them. `make generate` writes them, for the types that package apis tells.
package openapi

import (
	"k8s.io/apimachinery/pkg/runtime"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// Configure makes the server that config is for serve the definitions of the scheme's types.
func Configure(config *genericapiserver.Config, scheme *runtime.Scheme) {
	namer := openapinamer.NewDefinitionNamer(scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(GetOpenAPIDefinitions, namer)
	config.OpenAPIConfig.Info.Title = "Regent"
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(GetOpenAPIDefinitions, namer)
	config.OpenAPIV3Config.Info.Title = "Regent"
}
