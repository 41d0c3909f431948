package edge

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/scheme"

	"github.com/regent-project/regent/pkg/election/fence"
)

// The token of a change that finds nothing is checked before its answer, and nothing of that answer is kept meanwhile.
func TestAnAnswerThatNothingWasFoundIsHeldToTheTokenAndNotKept(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		check  error
		want   int
	}{
		"nothing was found":                          {http.StatusNotFound, nil, http.StatusNotFound},
		"nothing was found, and the term is over":    {http.StatusNotFound, fence.NewRefusal("the term is over"), http.StatusPreconditionFailed},
		"nothing was found, and nobody knows":        {http.StatusNotFound, errors.New("no etcd"), http.StatusInternalServerError},
		"another answer, and the term is over":       {http.StatusConflict, fence.NewRefusal("the term is over"), http.StatusConflict},
		"an answer without a status, and it is over": {0, fence.NewRefusal("the term is over"), http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			f := &tokenFilter{check: func(context.Context) error { return c.check }, serializer: scheme.Codecs.WithoutConversion()}
			answer := httptest.NewRecorder()
			f.serveChange(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if c.status != 0 {
					w.WriteHeader(c.status)
				}
				_, _ = io.WriteString(w, "the handler's own")
				if c.want == c.status && answer.Body.Len() == 0 {
					t.Error("what the handler has written is kept")
				}
			}), answer, httptest.NewRequestWithContext(t.Context(), http.MethodDelete, "/", nil))
			refused := c.want != c.status && c.status != 0
			if own := strings.Contains(answer.Body.String(), "the handler's own"); answer.Code != c.want || own == refused {
				t.Errorf("%d: %s", answer.Code, answer.Body)
			}
		})
	}
}
