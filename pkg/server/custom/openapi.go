package custom

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
)

// schemasPath is the path of the schemas of an API version.
func schemasPath(gv schema.GroupVersion) string { return "apis/" + gv.Group + "/" + gv.Version }

// index serves /openapi/v3: where the schemas of each API version are. The URL has what identifies the definitions in
// it, so that clients need not ask again for what they have. Upstream's has a hash of the schemas, for which all of
// them would have to be made.
func (d *documents) index(w http.ResponseWriter, req *http.Request, definitions []*Definition, next http.Handler) error {
	all := &handler3.OpenAPIV3Discovery{}
	if err := ask(req, next, "application/json", all); err != nil {
		return err
	}
	for _, g := range groupsOf(definitions) {
		for _, v := range g.versions {
			path := schemasPath(v.GroupVersion)
			all.Paths[path] = handler3.OpenAPIV3DiscoveryGroupVersion{
				ServerRelativeURL: "/openapi/v3/" + path + "?hash=" + identify(v.of),
			}
		}
	}
	body, err := json.Marshal(all)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("encode the index of schemas: %w", err))
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
	return nil
}

// serving returns the definitions that serve an API version.
func serving(definitions []*Definition, gv schema.GroupVersion) []*Definition {
	return slices.DeleteFunc(slices.Clone(ofGroup(definitions, gv.Group)), func(d *Definition) bool { return !d.serves(gv.Version) })
}

// schemas serves the schemas of an API version.
func (d *documents) schemas(w http.ResponseWriter, req *http.Request, definitions []*Definition, gv schema.GroupVersion) (bool, error) {
	of := serving(definitions, gv)
	if len(of) == 0 {
		return false, nil
	}
	id := identify(of)
	answer, err := d.encoded(req, of, gv, id)
	if err != nil {
		return true, apierrors.NewInternalError(err)
	}
	for name, values := range answer.header {
		for _, value := range values {
			w.Header().Add(name, value)
		}
	}
	if req.URL.Query().Get("hash") == id {
		w.Header().Set("Cache-Control", "public, immutable")
		w.Header().Set("Expires", time.Now().AddDate(1, 0, 0).Format(time.RFC1123))
	}
	if answer.code != http.StatusOK {
		w.WriteHeader(answer.code)
		_, _ = w.Write(answer.body)
		return true, nil
	}
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(answer.body))
	return true, nil
}

// encoded returns the schemas of an API version as a client accepts them. It keeps nothing else of them: decoded they
// are five times as large.
func (d *documents) encoded(req *http.Request, definitions []*Definition, gv schema.GroupVersion, id string) (*recording, error) {
	accept := strings.Join(req.Header.Values("Accept"), ",")
	key := "openapi " + gv.String() + " " + id + " " + accept
	if there, ok := d.cache.get(req.Context(), key); ok {
		return there.(*recording), nil
	}
	// those who wait for a large one, or ask again after a timeout, do not make it several times
	made, err := d.making.lock(req.Context(), key)
	if err != nil {
		return nil, apierrors.NewTimeoutError("the document of an API group is being made: try again", 1)
	}
	defer made()
	if there, ok := d.cache.get(req.Context(), key); ok {
		return there.(*recording), nil
	}
	service, err := schemasOf(definitions, gv)
	if err != nil {
		return nil, err
	}
	inner := req.Clone(req.Context())
	inner.Method, inner.Header = http.MethodGet, http.Header{"Accept": {accept}}
	inner.URL.RawQuery = "" // upstream's hash would be another
	answer := &recording{header: http.Header{}, code: http.StatusOK}
	service.HandleGroupVersion(answer, inner)
	answer.header.Del("Content-Length") // of all of it, which is not always asked for
	d.cache.add(req.Context(), key, answer, len(key)+len(answer.body))
	return answer, nil
}

// schemasOf returns what encodes the schemas of an API version.
func schemasOf(definitions []*Definition, gv schema.GroupVersion) (*handler3.OpenAPIService, error) {
	var specs []*spec3.OpenAPI
	for _, of := range definitions {
		one, err := builder.BuildOpenAPIV3(of.definition(), gv.Version, builder.Options{IncludeSelectableFields: true})
		if err != nil {
			return nil, fmt.Errorf("schemas of %s.%s: %w", of.names.Plural, gv, err)
		}
		specs = append(specs, one)
	}
	merged, err := builder.MergeSpecsV3(specs...)
	if err != nil {
		return nil, fmt.Errorf("schemas of %s: %w", gv, err)
	}
	made := handler3.NewOpenAPIService()
	made.UpdateGroupVersion(schemasPath(gv), merged)
	return made, nil
}
