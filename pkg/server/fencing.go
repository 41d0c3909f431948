package server

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/regent-project/regent/pkg/election/fence"
)

// withToken puts a request's fencing token into its context. One that cannot be read is refused: the sender believes its
// write to be fenced.
func withToken(next http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		token, err := fence.Parse(req.Header.Values(fence.Header))
		if err != nil {
			responsewriters.ErrorNegotiated(apierrors.NewBadRequest(err.Error()), serializer, schema.GroupVersion{Version: "v1"}, w, req)
			return
		}
		if !token.IsZero() {
			req = req.WithContext(fence.With(req.Context(), token))
		}
		next.ServeHTTP(w, req)
	})
}
