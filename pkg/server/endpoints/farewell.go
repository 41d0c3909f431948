package endpoints

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/regent-project/regent/pkg/server/status"
)

const (
	// maxFarewell is the maximum size of the body, longestReplica of the names in it, both in bytes.
	maxFarewell, longestReplica = 1 << 10, 256
)

// farewell handles POST /regent/v1/farewell, for replicas of the same shard: the one that it names ends in order, and
// is listed no more.
type farewell struct {
	heard      func(status.Farewell)
	serializer runtime.NegotiatedSerializer
}

// ServeHTTP implements http.Handler.
func (f *farewell) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if err := f.take(req); err != nil {
		responsewriters.ErrorNegotiated(err, f.serializer, schema.GroupVersion{Version: "v1"}, w, req)
	}
}

func (f *farewell) take(req *http.Request) error {
	if req.Method != http.MethodPost {
		return apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "farewell"}, req.Method)
	}
	var said status.Farewell
	if err := json.NewDecoder(io.LimitReader(req.Body, maxFarewell)).Decode(&said); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf(`the body must be {"replica": "<name>"}: %v`, err))
	}
	if said.Replica == "" || max(len(said.Replica), len(said.Instance)) > longestReplica {
		return apierrors.NewBadRequest(fmt.Sprintf("the replica's name must have 1 to %d bytes, and so its instance", longestReplica))
	}
	f.heard(said)
	return nil
}

var _ http.Handler = (*farewell)(nil)
