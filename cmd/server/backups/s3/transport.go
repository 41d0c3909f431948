package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// answerBytes bounds an answer that is no object: a page of a listing has up to 1,000 names of up to 1 KiB.
const answerBytes = 16 << 20

// allowed is what the answer of a request may have.
type allowed struct{}

// allow bounds the answer of a request for an object.
func allow(ctx context.Context, bytes int64) context.Context {
	return context.WithValue(ctx, allowed{}, bytes)
}

// transport ends requests of a store that hangs, at whatever point, and answers without end.
type transport struct {
	to    http.RoundTripper
	stall time.Duration
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	hang := fmt.Errorf("the store has not moved for %v", t.stall)
	late := time.AfterFunc(t.stall, func() { cancel(hang) })
	move := func(err error) error {
		late.Reset(t.stall)
		if err != nil && errors.Is(context.Cause(ctx), hang) {
			return hang
		}
		return err
	}
	end := func() {
		late.Stop()
		cancel(nil)
	}
	left, ok := req.Context().Value(allowed{}).(int64)
	if !ok || req.Method != http.MethodGet {
		left = answerBytes
	}
	req = req.Clone(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		req.Body, req.GetBody = &body{ReadCloser: req.Body, left: req.ContentLength, move: move, end: func() {}}, nil
	}
	resp, err := t.to.RoundTrip(req)
	if err != nil {
		err = move(err)
		end()
		return nil, err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		left = answerBytes
	}
	resp.Body = &body{ReadCloser: resp.Body, left: left, move: move, end: end}
	return resp, nil
}

// body is read while it moves, up to a bound.
type body struct {
	io.ReadCloser
	left int64
	move func(error) error
	end  func()
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errors.New("the store answers with more than was asked for")
	}
	if errors.Is(err, io.EOF) {
		return n, err //nolint:errorlint // readers compare it
	}
	return n, b.move(err)
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
