package shards

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/regent-project/regent/pkg/server/fetch"
)

// Ask asks a replica of a shard for a URL, and returns the answer, which may have so many bytes. An answer other than
// 200 is an error.
func Ask(ctx context.Context, next http.RoundTripper, at *url.URL, limit int64) (*fetch.Answer, error) {
	answer, err := fetch.Get(ctx, next.RoundTrip, at.String(), limit)
	if refusal := (*fetch.Refusal)(nil); errors.As(err, &refusal) {
		switch refusal.Code {
		case http.StatusUnauthorized:
			return nil, fmt.Errorf("%w: does it know this member of the installation? regent shard list", err)
		case http.StatusForbidden, http.StatusNotFound:
			return nil, fmt.Errorf("%w: it may run an older version", err)
		}
	}
	return answer, err
}

// Ask sends GET to a path, perhaps with a query, at one replica of another shard after the other until one answers with
// 200, and returns the body. Each may take so long, and answer with so many bytes. The credentials are those with which
// this shard reads.
func (r *Reader) Ask(ctx context.Context, shard, path string, each time.Duration, limit int64) (body []byte, err error) {
	p, err := r.peer(shard)
	if err != nil {
		return nil, err
	}
	err = p.transport.replicas.try(ctx, func(replica *url.URL, _ bool) error {
		ctx, cancel := context.WithTimeout(ctx, each)
		defer cancel()
		path, query, _ := strings.Cut(path, "?")
		at := replica.JoinPath(path)
		at.RawQuery = query
		answer, err := Ask(ctx, p.transport.next, at, limit)
		if err != nil {
			return of(replica.Host, err)
		}
		body = answer.Body
		return nil
	})
	return body, err
}

// Peers returns the other shards by name, and whether each is heard.
func (r *Reader) Peers() map[string]bool {
	r.mu.Lock()
	names := make([]string, 0, len(r.peers))
	for name := range r.peers {
		names = append(names, name)
	}
	r.mu.Unlock()
	heard := map[string]bool{}
	for _, name := range names {
		heard[name] = r.shards.Contact.Hears(name)
	}
	return heard
}
