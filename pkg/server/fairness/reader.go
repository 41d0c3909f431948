package fairness

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// WithSeat returns a handler whose requests give back their places while their clients read the answer slowly. cut ends
// the answer of the request in ctx, also if a write is under way.
func WithSeat(cut func(context.Context), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx := req.Context()
		s := newSeat(func() { cut(ctx) })
		slow := time.AfterFunc(time.Hour, s.away)
		defer slow.Stop()
		slow.Stop() // until a write begins
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(&read{w, s, slow, ctx}), req.WithContext(context.WithValue(ctx, seatKey{}, s)))
	})
}

// read is an answer that a client reads.
type read struct {
	http.ResponseWriter
	seat *seat
	slow *time.Timer     // calls away when the client has kept the request waiting for too long
	ctx  context.Context //nolint:containedctx // a ResponseWriter's methods take none
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (r *read) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Write implements http.ResponseWriter.
func (r *read) Write(p []byte) (n int, err error) {
	if len(p) > bytesPerPlace {
		r.seat.weigh(len(p))
	}
	if back := r.during(); back != nil {
		defer func() {
			if left := back(); left != nil && err == nil {
				err = left
			}
		}()
	}
	return r.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (r *read) Flush() {
	flusher, ok := r.ResponseWriter.(http.Flusher)
	if !ok {
		return
	}
	if back := r.during(); back != nil {
		defer func() { _ = back() }() // the next write tells
	}
	flusher.Flush()
}

// during begins what may have to wait for the client. back says that it is over. It is nil for a request without
// places.
func (r *read) during() (back func() error) {
	patience, placed := r.seat.wait()
	if !placed {
		return nil
	}
	began := time.Now()
	if patience > 0 {
		r.slow.Reset(patience)
	} else {
		r.seat.away()
	}
	return func() error {
		r.slow.Stop()
		return r.seat.back(r.ctx, time.Since(began))
	}
}

var _ responsewriter.UserProvidedDecorator = (*read)(nil)
