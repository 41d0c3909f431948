package upgrade

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"k8s.io/client-go/rest"
)

// client is a program with client-go's transport, and connections of its own. It makes no request twice but where
// net/http knows that the server has not begun with it.
type client struct{ http *http.Client }

func newClient(t *testing.T, config *rest.Config) *client {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Dial = (&net.Dialer{}).DialContext // client-go shares no transport of a config that dials by itself
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return &client{c}
}

// open makes a request, and returns the answer with its body open.
func (c *client) open(ctx context.Context, method, url string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return c.http.Do(req)
}

func (c *client) do(ctx context.Context, method, url string, body []byte) (status int, answer []byte, err error) {
	resp, err := c.open(ctx, method, url, body)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}
