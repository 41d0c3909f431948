package fence

import (
	"net/http"
	"testing"
)

type recorded struct{ sent *http.Request }

func (r *recorded) RoundTrip(req *http.Request) (*http.Response, error) {
	r.sent = req
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func TestTheTransportSendsTheTokenAndLeavesTheRequest(t *testing.T) {
	wrap := Transport(Of(sound))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://127.0.0.1/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(Header, "what somebody else put there")
	next := &recorded{}
	resp, err := wrap(next).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if got, err := Parse(next.sent.Header.Values(Header)); err != nil || got != sound {
		t.Errorf("sent %v, %v", got, err)
	}
	if req.Header.Get(Header) != "what somebody else put there" {
		t.Error("the caller's request was changed")
	}
}

func TestAContextCarriesAToken(t *testing.T) {
	if got := From(t.Context()); !got.IsZero() {
		t.Errorf("got %v from a context without one", got)
	}
	if got := From(With(t.Context(), sound)); got != sound {
		t.Errorf("got %v", got)
	}
}
