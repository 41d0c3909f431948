package loopback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/regent-project/regent/pkg/clusters"
)

// serving is a server that is one function.
func serving(handler http.HandlerFunc) *Server {
	s := &Server{}
	s.Serve(handler)
	return s
}

func send(t *testing.T, ctx context.Context, s *Server, path, body string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://somewhere"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return (&http.Client{Transport: s}).Do(req)
}

func text(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

type key struct{}

func TestAHandlerSeesARequestLikeOneFromTheNetwork(t *testing.T) {
	s := serving(func(w http.ResponseWriter, req *http.Request) {
		b, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		if _, named := clusters.From(req.Context()); named || req.Context().Value(key{}) != nil {
			t.Error("the handler sees values of the caller's context")
		}
		if req.URL.Scheme != "" || req.URL.Host != "" || req.TLS != nil || req.RemoteAddr == "" {
			t.Errorf("%+v", req)
		}
		req.Header.Del("Authorization") // as upstream's authentication does
		w.Header().Set("X-Said", req.Header.Get("X-Say"))
		w.WriteHeader(http.StatusCreated)
		w.Header().Set("X-Late", "not sent")
		_, _ = fmt.Fprintf(w, "%s %s %s", req.Method, req.RequestURI, b)
	})
	ctx := clusters.With(context.WithValue(t.Context(), key{}, "secret"), "root")
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "https://somewhere/a%2Fb?c=d", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer x")
	req.Header.Set("X-Say", "hello")
	resp, err := (&http.Client{Transport: s}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if got := text(t, resp); got != "PUT /a%2Fb?c=d body" || resp.StatusCode != http.StatusCreated || resp.ContentLength != int64(len(got)) {
		t.Errorf("answer %d %q, length %d", resp.StatusCode, got, resp.ContentLength)
	}
	if resp.Header.Get("X-Said") != "hello" || resp.Header.Get("X-Late") != "" || req.Header.Get("Authorization") == "" {
		t.Errorf("headers %v, sent %v", resp.Header, req.Header)
	}
}

func TestARequestEndsWithItsContext(t *testing.T) {
	for _, path := range []string{"/x", "/x?watch=true"} {
		synctest.Test(t, func(t *testing.T) {
			ended := make(chan struct{})
			s := serving(func(_ http.ResponseWriter, req *http.Request) {
				defer close(ended)
				<-req.Context().Done()
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := send(t, ctx, s, path, ""); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", path, err)
			}
			select {
			case <-ended:
			default:
				t.Errorf("%s: the handler still runs", path)
			}
			if _, err := send(t, ctx, s, path, ""); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s, asked when it is over: %v", path, err)
			}
		})
	}
}

func TestAHandlerThatPanicsFailsTheRequest(t *testing.T) {
	for _, path := range []string{"/x", "/x?watch=1"} {
		for _, with := range []any{http.ErrAbortHandler, "a fault"} {
			s := serving(func(http.ResponseWriter, *http.Request) { panic(with) })
			resp, err := send(t, t.Context(), s, path, "")
			if err == nil { // a watch has begun to be answered
				_, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
			if !errors.Is(err, errAborted) {
				t.Errorf("%s, %v: %v", path, with, err)
			}
		}
	}
}

func TestAWatchIsAnsweredWhileItGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events, ended := make(chan string), make(chan struct{})
		s := serving(func(w http.ResponseWriter, req *http.Request) {
			defer close(ended)
			flusher, ok := responsewriter.WrapForHTTP1Or2(&decorated{w}).(http.Flusher)
			if !ok {
				t.Error("upstream's filters could not flush")
				return
			}
			flusher.Flush()
			for {
				select {
				case <-req.Context().Done():
					return
				case event := <-events:
					if _, err := io.WriteString(w, event); err != nil {
						return
					}
				}
			}
		})
		resp, err := send(t, t.Context(), s, "/x?watch=true", "")
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range []string{"one", "two"} {
			events <- event
			got := make([]byte, len(event))
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != event {
				t.Errorf("got %q, %v, want %q", got, err, event)
			}
		}
		events <- "nobody reads that"
		synctest.Wait()
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		select {
		case <-ended:
		default:
			t.Error("Close returned before the handler")
		}
	})
}

// decorated is a writer as upstream's filters wrap it.
type decorated struct{ http.ResponseWriter }

func (d *decorated) Unwrap() http.ResponseWriter { return d.ResponseWriter }

func TestAServerThatDoesNotServeYetSaysSo(t *testing.T) {
	if _, err := send(t, t.Context(), &Server{}, "/x", ""); !errors.Is(err, errNotServing) {
		t.Error(err)
	}
}

func TestAClosedClientAsksNothing(t *testing.T) {
	asked := 0
	s := serving(func(w http.ResponseWriter, req *http.Request) {
		if asked++; req.Header.Get("Authorization") != "Bearer token" || req.URL.Path != "/clusters/root/x" {
			t.Errorf("%s, %v", req.URL, req.Header)
		}
	})
	for name, c := range map[string]*Client{"of all clusters": New(s, "token"), "of one": In("root", s, "token")} {
		asked = 0
		get := func() error {
			req, err := http.NewRequestWithContext(clusters.With(t.Context(), "root"), http.MethodGet, c.config.Host+"/x", nil)
			if err != nil {
				return err
			}
			resp, err := c.http.Do(req)
			if err == nil {
				_ = resp.Body.Close()
			}
			return err
		}
		if err := get(); err != nil || asked != 1 {
			t.Errorf("%s: %v, asked %d times", name, err, asked)
		}
		c.Close()
		if err := get(); !errors.Is(err, ErrClosed) || asked != 1 {
			t.Errorf("%s, closed: %v, asked %d times", name, err, asked)
		}
	}
}
