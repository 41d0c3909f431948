package fence

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/client-go/kubernetes/scheme"
)

var (
	writingMethods = []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	readingMethods = []string{http.MethodGet, http.MethodHead, http.MethodOptions}
)

// body is the body of a request, and records whether it was closed.
type body struct {
	io.Reader
	closed bool
}

func (b *body) Close() error {
	b.closed = true
	return nil
}

// send sends a request through a transport with that source. out is nil if the transport did not send it.
func send(ctx context.Context, t *testing.T, source Source, method string) (out *http.Request, of *body, _ error) {
	t.Helper()
	of = &body{Reader: strings.NewReader("{}")}
	req, err := http.NewRequestWithContext(ctx, method, "https://127.0.0.1/", of)
	if err != nil {
		t.Fatal(err)
	}
	next := &recorded{}
	resp, err := Transport(source)(next).RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	return next.sent, of, err
}

func TestWithoutATermWritesAreNotSentAndReadsAre(t *testing.T) {
	failed := errors.New("the source failed")
	for name, c := range map[string]struct {
		source Source
		want   error
	}{
		"no term":              {new(Current).Source, ErrNoTerm},
		"a source that fails":  {func(context.Context) (Token, error) { return sound, failed }, failed},
		"a token without uid":  {Of(Token{Cluster: "a", Namespace: "n", Name: "l", Holder: "h"}), nil},
		"a lease that is free": {Of(Token{Cluster: "a", Namespace: "n", Name: "l", UID: "u"}), nil},
	} {
		for _, method := range writingMethods {
			sent, body, err := send(t.Context(), t, c.source, method)
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: %s fails with %v, want %v", name, method, err, c.want)
			}
			if sent != nil || !body.closed {
				t.Errorf("%s: %s was sent: %t; its body was closed: %t", name, method, sent != nil, body.closed)
			}
		}
		for _, method := range readingMethods {
			sent, _, err := send(t.Context(), t, c.source, method)
			if err != nil || sent == nil || sent.Header.Values(Header) != nil {
				t.Errorf("%s: %s: %v, sent %v, want it sent without a token", name, method, err, sent)
			}
		}
	}
}

func TestTheZeroTokenIsNotSent(t *testing.T) {
	for _, method := range append(writingMethods, readingMethods...) {
		sent, _, err := send(t.Context(), t, Of(Token{}), method)
		if err != nil || sent == nil || sent.Header.Values(Header) != nil {
			t.Errorf("%s: %v, sent %v", method, err, sent)
		}
	}
}

func TestTheTokenOfTheContextIsSent(t *testing.T) {
	sent, _, err := send(With(t.Context(), sound), t, FromContext, http.MethodPut)
	if err != nil || sent.Header.Get(Header) != soundHeader {
		t.Errorf("%v, sent %v", err, sent)
	}
}

// One transport sends them all, and caches the header that it wrote last.
func TestCurrentSendsTheTokenOfEachTermWhileItLasts(t *testing.T) {
	var current Current
	next := &recorded{}
	through := Transport(current.Source)(next)
	write := func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://127.0.0.1/", nil)
		if err != nil {
			t.Fatal(err)
		}
		next.sent = nil
		resp, err := through.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	for epoch := range int64(3) {
		token := sound
		token.Epoch = epoch
		current.Set(token)
		for range 2 {
			if err := write(); err != nil {
				t.Fatal(err)
			}
			if got, err := Parse(next.sent.Header.Values(Header)); err != nil || got != token {
				t.Errorf("in term %v %v was sent, %v", token, got, err)
			}
		}
		current.Clear()
		if err := write(); !errors.Is(err, ErrNoTerm) || next.sent != nil {
			t.Errorf("after term %v: %v, sent %v", token, err, next.sent)
		}
	}
}

// answering gives every request the same answer.
type answering struct {
	code int
	body io.Reader
	err  error
}

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	if a.err != nil {
		return nil, a.err
	}
	return &http.Response{StatusCode: a.code, Body: io.NopCloser(a.body)}, nil
}

// observe returns how often OnFenced has called its function before it returns the answer, and that answer.
func observe(t *testing.T, next answering) (calls int, _ *http.Response, _ error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://127.0.0.1/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := OnFenced(func(*http.Request) { calls++ })(next).RoundTrip(req)
	return calls, resp, err
}

// encodings are all encodings that a server may use.
func encodings(t *testing.T) map[string]runtime.Serializer {
	t.Helper()
	out := map[string]runtime.Serializer{"application/cbor": cbor.NewSerializer(scheme.Scheme, scheme.Scheme)}
	for _, info := range scheme.Codecs.SupportedMediaTypes() {
		out[info.MediaType] = info.Serializer
	}
	for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf, runtime.ContentTypeYAML} {
		if out[mediaType] == nil {
			t.Fatalf("no serializer for %s", mediaType)
		}
	}
	return out
}

func statusOf(t *testing.T, err error) *metav1.Status {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatalf("%v has no status", err)
	}
	out := status.Status()
	out.APIVersion, out.Kind = "v1", "Status"
	return &out
}

func TestOnFencedHearsOfRefusalsInEveryEncodingAndOfNothingElse(t *testing.T) {
	refusal := statusOf(t, NewRefusal("over", metav1.StatusCause{Type: CurrentTerm, Message: "held by nobody"}))
	other := refusal.DeepCopy()
	other.Reason = "OtherReason"
	for mediaType, serializer := range encodings(t) {
		for name, c := range map[string]struct {
			code   int
			status *metav1.Status
			calls  int
		}{
			"a refusal":                     {http.StatusPreconditionFailed, refusal, 1},
			"another failed precondition":   {http.StatusPreconditionFailed, other, 0},
			"the reason with another code":  {http.StatusConflict, refusal, 0},
			"an answer that has the reason": {http.StatusOK, refusal, 0},
		} {
			var text bytes.Buffer
			if err := serializer.Encode(c.status, &text); err != nil {
				t.Fatal(err)
			}
			want := text.String()
			calls, resp, err := observe(t, answering{code: c.code, body: &text})
			if err != nil {
				t.Fatal(err)
			}
			if calls != c.calls {
				t.Errorf("%s: %s: called %d times, want %d", mediaType, name, calls, c.calls)
			}
			if got, err := io.ReadAll(resp.Body); err != nil || string(got) != want || resp.StatusCode != c.code {
				t.Errorf("%s: %s: the answer became %d %q, %v", mediaType, name, resp.StatusCode, got, err)
			}
		}
	}
}

func TestOnFencedLeavesLongAndBrokenAnswersAsTheyAre(t *testing.T) {
	long := strings.Repeat("x", longestAnswer) + "and more"
	calls, resp, err := observe(t, answering{code: http.StatusPreconditionFailed, body: strings.NewReader(long)})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != long || calls != 0 {
		t.Errorf("of %d bytes %d were left, %v; called %d times", len(long), len(got), err, calls)
	}

	broken := errors.New("the connection broke")
	_, resp, err = observe(t, answering{code: http.StatusPreconditionFailed, body: io.MultiReader(strings.NewReader("half of"), failing{broken})})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(resp.Body); !errors.Is(err, broken) || string(got) != "half of" {
		t.Errorf("read %q, %v", got, err)
	}

	if calls, _, err = observe(t, answering{err: broken}); !errors.Is(err, broken) || calls != 0 {
		t.Errorf("without an answer: %v, called %d times", err, calls)
	}
}
