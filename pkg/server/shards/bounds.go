package shards

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// bounds are what an answer of another shard may cost. A shard that hangs or that lies must not hold up whoever reads
// from it, nor fill its memory.
type bounds struct {
	shard string
	// header is how long the header of an answer may take, whole how long an answer may take that is no watch.
	header, whole time.Duration
	// size is how many bytes a list may have, object how many any other answer that is no watch. Of watches
	// client-go bounds each event.
	size, object int64
}

// A list of 100,000 Workspaces of 2 kB has 200 MB. An object has at most the 1.5 MB that etcd takes; many may be read
// at the same time.
func boundsOf(shard string) bounds {
	return bounds{shard: shard, header: 30 * time.Second, whole: 2 * time.Minute, size: 512 << 20, object: 8 << 20}
}

// WithBounds returns a transport to one shard through next. It gives up answers that never come or never end.
func WithBounds(shard string, next http.RoundTripper) http.RoundTripper {
	return &bounder{bounds: boundsOf(shard), next: next}
}

type bounder struct {
	bounds
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (r *bounder) RoundTrip(req *http.Request) (*http.Response, error) { return r.ask(req, r.next) }

// ask sends a request through next.
func (b bounds) ask(req *http.Request, next http.RoundTripper) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	header := b.after(b.header, cancel)
	resp, err := next.RoundTrip(req.WithContext(ctx))
	header.Stop()
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && req.Context().Err() == nil {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	body := &boundedBody{ReadCloser: resp.Body, ctx: ctx, bounds: b, left: -1, end: func() { cancel(nil) }}
	if !isWatch(req) {
		whole := b.after(b.whole, cancel)
		if !isList(req) {
			body.size = b.object
		}
		body.left, body.end = body.size+1, sync.OnceFunc(func() { whole.Stop(); cancel(nil) })
	}
	resp.Body = body
	return resp, nil
}

// after gives up a request after some time.
func (b bounds) after(d time.Duration, cancel context.CancelCauseFunc) *time.Timer {
	return time.AfterFunc(d, func() { cancel(fmt.Errorf("shard %s has not answered within %v", b.shard, d)) })
}

func isWatch(req *http.Request) bool { return req.URL.Query().Get("watch") != "" }

// isList reports whether a request asks for all objects of a kind: /clusters/<name>/apis/<group>/<version>/<resource>.
func isList(req *http.Request) bool {
	_, after, ok := strings.Cut(req.URL.Path, "/apis/")
	return ok && strings.Count(after, "/") == 2
}

// boundedBody is the body of an answer.
type boundedBody struct {
	io.ReadCloser
	bounds
	ctx  context.Context
	left int64 // how many bytes may come; negative: any number
	end  func()
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, fmt.Errorf("shard %s answers with more than %d bytes: it is broken, or has far more clusters than a shard is made for", b.shard, b.size)
	}
	if b.left > 0 {
		p = p[:min(int64(len(p)), b.left)]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left > 0 {
		b.left -= int64(n)
	}
	if err != nil && !errors.Is(err, io.EOF) && context.Cause(b.ctx) != nil {
		err = context.Cause(b.ctx)
	}
	return n, err
}

func (b *boundedBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

var _ http.RoundTripper = (*bounder)(nil)
