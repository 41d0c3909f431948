package endpoints

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/regent-project/regent/pkg/server/format"
	"github.com/regent-project/regent/pkg/server/status"
)

// I15: nobody has a shard go on to a format that one of its replicas does not read.
func TestAFormatIsRaisedOnlyIfAllReplicasReadItI15(t *testing.T) {
	replica := func(name string, newest int) status.Replica {
		return status.Replica{Name: name, Format: &status.Format{Stored: 1, ReadableFrom: "v0.1.0", Oldest: 1, Newest: newest, Since: "v0.2.0"}}
	}
	for name, c := range map[string]struct {
		method, body string
		replicas     []status.Replica
		fault        error
		code         int // 0: it is answered
		raised       int
	}{
		"all read it":         {http.MethodPost, `{"to": 2}`, []status.Replica{replica("a", 2), replica("b", 2)}, nil, 0, 2},
		"one does not":        {http.MethodPost, `{"to": 2}`, []status.Replica{replica("a", 2), replica("b", 1)}, nil, http.StatusConflict, 0},
		"one is silent":       {http.MethodPost, `{"to": 2}`, []status.Replica{replica("a", 2), {Name: "b", Fault: "away"}}, nil, http.StatusConflict, 0},
		"asked for twice":     {http.MethodPost, `{"to": 1}`, []status.Replica{replica("a", 1)}, nil, 0, 0},
		"another one is next": {http.MethodPost, `{"to": 3}`, []status.Replica{replica("a", 2)}, nil, http.StatusConflict, 0},
		"no format":           {http.MethodPost, `{}`, []status.Replica{replica("a", 2)}, nil, http.StatusConflict, 0},
		"no JSON":             {http.MethodPost, `to 2`, []status.Replica{replica("a", 2)}, nil, http.StatusBadRequest, 0},
		"only looked at":      {http.MethodGet, ``, []status.Replica{replica("a", 2)}, nil, http.StatusMethodNotAllowed, 0},
		"etcd is away":        {http.MethodPost, `{"to": 2}`, []status.Replica{replica("a", 2)}, errors.New("etcd does not answer"), http.StatusServiceUnavailable, 2},
	} {
		raised := 0
		f := &finalize{
			shard: func(context.Context) status.Shard { return status.Shard{Name: "root", Replicas: c.replicas} },
			raise: func(_ context.Context, to format.Format) error {
				raised = int(to)
				return c.fault
			},
		}
		now, err := f.take(httptest.NewRequestWithContext(t.Context(), c.method, status.FormatPath, strings.NewReader(c.body)))
		var refusal apierrors.APIStatus
		switch {
		case raised != c.raised:
			t.Errorf("%s: raised to %d", name, raised)
		case c.code == 0 && (err != nil || raised != 0 && now.From != raised):
			t.Errorf("%s: %+v, %v", name, now, err)
		case c.code != 0 && (!errors.As(err, &refusal) || int(refusal.Status().Code) != c.code):
			t.Errorf("%s: %v, want %d", name, err, c.code)
		}
	}
}
