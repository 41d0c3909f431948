package shards

import (
	"io"
	"net/http"
	"sync"
)

// OpenWatches counts the watches that are open through a transport. It is ready for use. All methods may be called at
// any time on any goroutine.
type OpenWatches struct {
	mu      sync.Mutex
	open    int
	changed chan struct{} // closed when open changes; nil: nobody has asked
}

// Over returns a transport through next that counts the watches, and refuses those that cannot go on (InOneHistory).
func (o *OpenWatches) Over(next http.RoundTripper) http.RoundTripper { return &tracker{o, next} }

type tracker struct {
	open *OpenWatches
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *tracker) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err == nil {
		err = t.open.track(req, resp)
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// track counts the watch that resp is, if it is one, until it breaks or is closed. If it returns an error, it has
// closed resp.
func (o *OpenWatches) track(req *http.Request, resp *http.Response) error {
	if err := check(req, resp); err != nil {
		_ = resp.Body.Close()
		return err
	}
	if !isWatch(req) || resp.StatusCode != http.StatusOK {
		return nil
	}
	o.count(1)
	resp.Body = &watchBody{ReadCloser: resp.Body, over: sync.OnceFunc(func() { o.count(-1) })}
	return nil
}

// Count returns how many watches are open, and a channel that is closed when that changes.
func (o *OpenWatches) Count() (open int, changed <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.changed == nil {
		o.changed = make(chan struct{})
	}
	return o.open, o.changed
}

func (o *OpenWatches) count(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open += n
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
}

// watchBody is the body of a watch. It tells when it is over.
type watchBody struct {
	io.ReadCloser
	over func()
}

func (w *watchBody) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err != nil {
		w.over()
	}
	return n, err
}

func (w *watchBody) Close() error {
	w.over()
	return w.ReadCloser.Close()
}

var _ http.RoundTripper = (*tracker)(nil)
