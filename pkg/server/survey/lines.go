package survey

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/url"
	"sync"

	"github.com/regent-project/regent/pkg/server/fetch"
	"github.com/regent-project/regent/pkg/server/shards"
)

// lines are the connections to the other replicas of this shard, which are called as other shards are.
type lines struct {
	cfg    Config
	caller *shards.Caller

	mu       sync.Mutex
	byURL    map[string]line
	isClosed bool
}

// line leads to one replica.
type line struct {
	*shards.Calls
	expects string // the fingerprint of the replica's authority
}

// ask sends GET to a path of the replica at a URL, and decodes the answer.
func (l *lines) ask(ctx context.Context, base, path string, into any) error {
	transport, at, err := l.of(base, path)
	if err != nil {
		return err
	}
	answer, err := shards.Ask(ctx, transport, at, maxAnswer)
	if err != nil {
		return err
	}
	return answer.Decode(into)
}

// tell sends POST with a body of JSON to a path of the replica at a URL.
func (l *lines) tell(ctx context.Context, base, path string, body []byte) error {
	transport, at, err := l.of(base, path)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := fetch.Do(transport.RoundTrip, req, maxReply)
	if err != nil {
		return err
	}
	if refusal := answer.Refusal(); refusal != nil {
		return refusal
	}
	return nil
}

// of returns the transport to the replica at a URL, and the whole URL.
func (l *lines) of(base, path string) (*shards.Calls, *url.URL, error) {
	transport, err := l.to(base)
	if err != nil {
		return nil, nil, err
	}
	at, err := url.Parse(base)
	if err != nil {
		return nil, nil, err
	}
	return transport, at.JoinPath(path), nil
}

// to returns the transport to a replica.
func (l *lines) to(base string) (*shards.Calls, error) {
	if base == "" {
		return nil, errors.New("it does not say where others reach it: it may run an older version")
	}
	if _, authority := l.cfg.Keys(); authority == nil {
		return nil, errors.New("the key of the shard's authority is not here, so this replica cannot ask others: ask that one itself")
	}
	expects := l.cfg.Authority()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed {
		return nil, errors.New("the replica that was asked stops")
	}
	if old, ok := l.byURL[base]; ok {
		if old.expects == expects {
			return old.Calls, nil
		}
		old.CloseIdleConnections()
	}
	calls, err := l.caller.Calls(l.cfg.Name, expects, func(config *tls.Config) (*http.Transport, error) {
		dialer, err := shards.NewDialer(l.cfg.Name, []string{base}, config)
		if err != nil {
			return nil, err
		}
		return dialer.Transport(), nil
	})
	if err != nil {
		return nil, err
	}
	l.byURL[base] = line{calls, expects}
	return calls, nil
}

// keepOnly closes the connections to all but these.
func (l *lines) keepOnly(targets []target) {
	keep := map[string]bool{}
	for _, t := range targets {
		keep[t.url] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for base, one := range l.byURL {
		if !keep[base] {
			one.CloseIdleConnections()
			delete(l.byURL, base)
		}
	}
}

// close closes all connections that are not in use, and opens no more.
func (l *lines) close() {
	l.keepOnly(nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isClosed = true
}
