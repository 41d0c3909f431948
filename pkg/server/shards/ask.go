package shards

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Ask sends GET to a path at the host of next, and returns the body of the answer, which may have so many bytes. An
// answer other than 200 is an error.
func Ask(ctx context.Context, next http.RoundTripper, at *url.URL, limit int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("its answer breaks off: %w", err)
	case resp.StatusCode == http.StatusUnauthorized:
		return nil, fmt.Errorf("it answers %s: does it know this member of the installation? regent shard list", resp.Status)
	case resp.StatusCode == http.StatusForbidden, resp.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("it answers %s: it may run an older version", resp.Status)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("it answers %s", resp.Status)
	case int64(len(body)) > limit:
		return nil, fmt.Errorf("it answers with more than %d bytes", limit)
	}
	return body, nil
}

// Ask sends GET to a path, perhaps with a query, at one replica of another shard after the other until one answers with
// 200, and returns the body. Each may take so long, and answer with so many bytes. The credentials are those with which
// this shard reads.
func (r *Reader) Ask(ctx context.Context, shard, path string, each time.Duration, limit int64) (body []byte, err error) {
	p, err := r.peer(shard)
	if err != nil {
		return nil, err
	}
	err = p.transport.replicas.try(ctx, func(replica *url.URL, _ bool) (err error) {
		ctx, cancel := context.WithTimeout(ctx, each)
		defer cancel()
		path, query, _ := strings.Cut(path, "?")
		at := replica.JoinPath(path)
		at.RawQuery = query
		if body, err = Ask(ctx, p.transport.next, at, limit); err != nil {
			return of(replica.Host, err)
		}
		return nil
	})
	return body, err
}

// Heard returns whether each of the other shards is heard, by name.
func (r *Reader) Heard() map[string]bool {
	r.mu.Lock()
	names := make([]string, 0, len(r.peers))
	for name := range r.peers {
		names = append(names, name)
	}
	r.mu.Unlock()
	heard := map[string]bool{}
	for _, name := range names {
		heard[name] = r.shards.Contact.Heard(name)
	}
	return heard
}
