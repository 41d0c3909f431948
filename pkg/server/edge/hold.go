package edge

import (
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/regent-project/regent/pkg/server/bundle"
	"github.com/regent-project/regent/pkg/server/identity"
	"github.com/regent-project/regent/pkg/server/routing"
)

// withObjectsHeld returns a handler that answers 503 to requests for objects until etcd is known to be this shard's.
// Until then the objects may be another shard's: other shards and fronts would take what is missing among them for
// deleted.
func withObjectsHeld(known healthz.HealthChecker, next http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if info, ok := request.RequestInfoFrom(req.Context()); ok && (info.IsResourceRequest || slices.Contains(bundle.Paths, info.Path)) && !identity.IsOwn(req) {
			if err := known.Check(req); err != nil {
				responsewriters.ErrorNegotiated(routing.NewUnavailable(err.Error()), serializer, schema.GroupVersion{Version: "v1"}, w, req)
				return
			}
		}
		next.ServeHTTP(w, req)
	})
}
