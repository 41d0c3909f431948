package survey

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestWhoPassesARequestOnKnowsWhetherItMayHaveBeenCarriedOut(t *testing.T) {
	h := newHouse(t)
	stranger := newHouse(t)
	for name, c := range map[string]struct {
		to         string
		code       int
		unanswered bool
		says       string
	}{
		"answered":      {h.serve(h.authority, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "yes") }), http.StatusOK, false, ""},
		"refused":       {h.serve(h.authority, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusConflict) }), http.StatusConflict, false, ""},
		"broken off":    {h.serve(h.authority, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), 0, true, ""},
		"too long":      {h.serve(h.authority, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, maxReply+1)) }), 0, true, "65536 bytes"},
		"hanging":       {h.serve(h.authority, func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }), 0, true, "deadline"},
		"nobody there":  {"https://127.0.0.1:1", 0, false, "refused"},
		"somebody else": {h.serve(stranger.authority, func(http.ResponseWriter, *http.Request) { t.Error("a stranger was asked") }), 0, false, "authority"},
		"nowhere":       {"", 0, false, "does not say"},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.to+"/wish", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			s := h.survey(follower("self", "leader"))
			if name == "hanging" {
				s.patience = brief
			}
			code, body, err := s.Send(req, c.to)
			if code != c.code || (err == nil) != (c.code != 0) || errors.Is(err, ErrUnanswered) != c.unanswered || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%d %q, %v", code, body, err)
			}
		})
	}
}
