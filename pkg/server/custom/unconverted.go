package custom

import (
	"net/http"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
)

// unconverted has requests of this process's controllers served without a conversion webhook, if they are for metadata
// alone or delete an object. Garbage collection and the deletion of definitions, namespaces and logical clusters must
// not wait for a tenant's webhook, and neither must the end of a term.
//
// One object is served in the version in which it is stored, so that what else it has stays as it is. Lists show
// metadata, which is the same in all versions. Other requests are returned as they are.
func (s *Server) unconverted(req *http.Request, info *request.RequestInfo, c *Content) (*http.Request, *Content, error) {
	if !hasWebhook(c) || !s.internal(req.Context()) || !forMetadata(req, info) {
		return req, c, nil
	}
	version, one := info.APIVersion, info.Verb == "get" || info.Verb == "delete" || info.Verb == "patch"
	if one {
		stored, err := s.storedVersion(req, info, c)
		if err != nil {
			return nil, nil, err
		}
		if stored != "" {
			version = stored
		}
	}
	at := slices.IndexFunc(c.spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version })
	if at < 0 && !one { // upstream says so
		return req, c, nil
	}
	out, err := s.variant(c, func(spec *apiextensionsv1.CustomResourceDefinitionSpec) {
		if at < 0 {
			at, spec.Versions = len(spec.Versions), append(spec.Versions, schemaless(version))
		}
		spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
		for i := range spec.Versions {
			spec.Versions[i].Storage = i == at
		}
		spec.Versions[at].Served = true
	})
	if err != nil {
		return nil, nil, err
	}
	of := *info
	of.APIVersion = version
	ctx := request.WithRequestInfo(req.Context(), &of)
	if one {
		ctx = withStored(ctx, schema.GroupVersion{Group: info.APIGroup, Version: version}.String())
	}
	return req.WithContext(ctx), out, nil
}

func forMetadata(req *http.Request, info *request.RequestInfo) bool {
	if info.Subresource != "" {
		return false
	}
	switch info.Verb {
	case "delete":
		return true
	case "get", "list", "watch", "patch":
		return strings.Contains(req.Header.Get("Accept"), "as=PartialObjectMetadata")
	}
	return false
}

// storedVersion returns the version in which an object is stored, and "" if there is none.
func (s *Server) storedVersion(req *http.Request, info *request.RequestInfo, c *Content) (string, error) {
	key := collection(schema.GroupKind{Group: c.spec.Group, Kind: c.names.Kind})
	if c.spec.Scope == apiextensionsv1.NamespaceScoped {
		key += "/" + info.Namespace
	}
	found := &object{}
	err := s.stored.store.Get(req.Context(), key+"/"+info.Name, storage.GetOptions{}, found)
	if storage.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", apierrors.NewInternalError(err)
	}
	return found.GroupVersionKind().Version, nil
}
