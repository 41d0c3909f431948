package front

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/regent-project/regent/pkg/server/routing"
)

// isWatch reports whether a shard takes a request for a watch: a stream that ends when either side wants.
func isWatch(req *http.Request) bool {
	// most need not be parsed
	if req.Method != http.MethodGet || !strings.Contains(req.URL.Path, "/watch/") && !strings.ContainsAny(req.URL.RawQuery, "w%") {
		return false
	}
	inner := &url.URL{Path: req.URL.Path}
	if after, ok := strings.CutPrefix(inner.Path, shardPrefix); ok {
		_, rest, _ := strings.Cut(after, "/")
		inner.Path = "/" + rest
	}
	if _, rest, err := routing.Split(inner); err == nil {
		inner.Path = rest
	}
	info, err := requestInfos.NewRequestInfo(&http.Request{Method: req.Method, URL: inner})
	if err != nil || info.Verb != "list" {
		return err == nil && info.Verb == "watch"
	}
	values := req.URL.Query()["watch"]
	return len(values) > 0 && values[0] != "0" && !strings.EqualFold(values[0], "false")
}

var requestInfos = &apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// streams are the watches that are open. All methods may be called at any time on any goroutine.
type streams struct {
	mu     sync.Mutex
	open   map[*stream]struct{}
	ending bool
}

// stream is the body of a watch. However it breaks, it ends as if the shard had ended it: the client begins the watch
// again, where it was.
type stream struct {
	io.ReadCloser
	over func()
}

// add makes the body of a watch a stream.
func (s *streams) add(body io.ReadCloser) io.ReadCloser {
	out := &stream{ReadCloser: body}
	out.over = sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, out)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[*stream]struct{}{}
	}
	if s.open[out] = struct{}{}; s.ending {
		_ = body.Close()
	}
	return out
}

// Read implements io.Reader. A part of an event at the end is no event: clients expect that a connection breaks.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err != nil {
		err = io.EOF
	}
	return n, err
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.over()
	return s.ReadCloser.Close()
}

// endAll ends the streams one by one within some time, so that not all clients come back at the same moment. Later ones
// end as they begin. It stops when ctx ends.
func (s *streams) endAll(ctx context.Context, within time.Duration) {
	s.mu.Lock()
	s.ending = true
	open := slices.Collect(maps.Keys(s.open))
	s.mu.Unlock()
	for _, one := range open {
		_ = one.ReadCloser.Close() // its reader gets io.EOF
		select {
		case <-ctx.Done():
			return
		case <-time.After(within / time.Duration(len(open))):
		}
	}
}
