package endpoints

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/pkg/server/format"
	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/status"
)

// maxFinalize is the maximum size of the body, in bytes.
const maxFinalize = 1 << 10

// finalize handles POST /regent/v1/format, for members of system:masters, and for whom a ClusterRoleBinding in
// system:admin allows it: the shard goes on to a newer format, if all its replicas are heard and read it. It answers
// 409 if one of them does not, or if the format to which the shard can go is not the one that was asked for.
type finalize struct {
	shard      func(context.Context) status.Shard
	raise      func(context.Context, format.Format) error
	serializer runtime.NegotiatedSerializer
}

// ServeHTTP implements http.Handler.
func (f *finalize) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	response, err := f.take(req)
	answerJSON(w, req, f.serializer, response, err)
}

func (f *finalize) take(req *http.Request) (status.Upgrade, error) {
	if req.Method != http.MethodPost {
		return status.Upgrade{}, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "format"}, req.Method)
	}
	var asked status.Finalize
	if err := json.NewDecoder(io.LimitReader(req.Body, maxFinalize)).Decode(&asked); err != nil {
		return status.Upgrade{}, apierrors.NewBadRequest(fmt.Sprintf(`the body must be {"to": <format>}: %v`, err))
	}
	now := status.UpgradeOf(f.shard(req.Context()))
	switch {
	case asked.To == now.From: // it was asked for twice
		return now, nil
	case len(now.HeldBy) > 0:
		return status.Upgrade{}, newConflict("shard %s stays in format %d: %s", now.Shard, now.From, strings.Join(now.HeldBy, " "))
	case asked.To != now.To:
		return status.Upgrade{}, newConflict("shard %s is in format %d, and can go on to %d, not to %d: see regent upgrade status", now.Shard, now.From, now.To, asked.To)
	}
	if err := f.raise(req.Context(), format.Format(asked.To)); err != nil {
		return status.Upgrade{}, routing.NewUnavailable(err.Error())
	}
	now.From, now.ReadableFrom = now.To, now.Since
	return now, nil
}
