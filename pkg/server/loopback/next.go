package loopback

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	// nextPause is the pause between two looks of Run. Run does not make the next client at once after a term has taken one:
	// that term has more urgent work.
	nextPause = 5 * time.Second
	// idleLimit is how often Run uses the connection. The server closes connections that are idle for 90 s.
	idleLimit = 30 * time.Second
	// pingTimeout bounds a request that opens the connection or keeps it open.
	pingTimeout = 5 * time.Second
)

// Next keeps a client for the next term, with an open connection. A TLS handshake takes several milliseconds, right before the
// term's first write. Nobody else uses that client before the term takes it.
type Next struct {
	host          *rest.Config
	token, pinger string
	ready         atomic.Pointer[Client]
}

// NewNext returns a Next whose clients are of the user of token. Until a term takes the client, Run uses its connection as the
// user of pinger.
func NewNext(host *rest.Config, token, pinger string) *Next {
	return &Next{host: host, token: token, pinger: pinger}
}

// Take returns the client that is kept, or a new one. The caller must close it.
func (n *Next) Take() (*Client, error) {
	if c := n.ready.Swap(nil); c != nil {
		return c, nil
	}
	return New(n.host, n.token)
}

// Run makes a client whenever none is kept, from the moment serving is closed until ctx ends. Then it closes the client that it
// keeps.
func (n *Next) Run(ctx context.Context, serving <-chan struct{}) {
	defer func() {
		if c := n.ready.Swap(nil); c != nil {
			c.Close()
		}
	}()
	select {
	case <-ctx.Done():
		return
	case <-serving:
	}
	every := time.NewTicker(nextPause)
	defer every.Stop()
	used := time.Now()
	for ctx.Err() == nil {
		switch c := n.ready.Load(); {
		case c == nil:
			n.open(ctx)
			used = time.Now()
		case time.Since(used) >= idleLimit:
			n.use(ctx, c)
			used = time.Now()
		}
		select {
		case <-ctx.Done():
		case <-every.C:
		}
	}
}

// open makes a client and opens its connection.
func (n *Next) open(ctx context.Context) {
	c, err := New(n.host, n.token)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot open a connection for the next term ahead of time: that term will open it and begin some milliseconds later")
		return
	}
	n.use(ctx, c)
	n.ready.Store(c)
}

// use opens the connection, or keeps it open. If that fails, the term has to open it.
func (n *Next) use(ctx context.Context, c *Client) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := c.ping(ctx, n.pinger); err != nil {
		klog.FromContext(ctx).V(2).Info("The next term's connection is not open", "err", err)
	}
}

// ping requests /livez/ping. Without a token the server would close the connection.
func (c *Client) ping(ctx context.Context, token string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.config.Host+"/livez/ping", http.NoBody)
	if err != nil {
		return fmt.Errorf("a request over the loopback: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := c.door.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("a request over the loopback: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return fmt.Errorf("the answer to a request over the loopback: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("a request over the loopback: %s", resp.Status)
	}
	return nil
}
