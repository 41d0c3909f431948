package survey

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"

	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/pkg/server/shards"
)

// lines are the connections to the other replicas of this shard, which are called as other shards are.
type lines struct {
	cfg Config

	mu     sync.Mutex
	byURL  map[string]*line
	closed bool
}

// line leads to one replica, with the credentials that this process had when it was made.
type line struct {
	transport *http.Transport
	ca        string
	authority *pki.Authority
	expects   string // the fingerprint of the replica's authority
}

// ask sends GET to a path of the replica at a URL.
func (l *lines) ask(ctx context.Context, base, path string) ([]byte, error) {
	if base == "" {
		return nil, errors.New("it does not say where others reach it: it may run an older version")
	}
	transport, err := l.to(base)
	if err != nil {
		return nil, err
	}
	at, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	return shards.Ask(ctx, transport, at.JoinPath(path), maxAnswer)
}

// to returns the transport to a replica.
func (l *lines) to(base string) (*http.Transport, error) {
	ca, authority := l.cfg.Keys()
	expects := l.cfg.Authority()
	if authority == nil {
		return nil, errors.New("the key of the shard's authority is not here, so this replica cannot ask others: ask that one itself")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errors.New("the replica that was asked stops")
	}
	if old := l.byURL[base]; old != nil {
		if old.ca == string(ca) && old.authority == authority && old.expects == expects {
			return old.transport, nil
		}
		old.transport.CloseIdleConnections()
	}
	config, err := shards.ClientTLS(ca, authority, l.cfg.Name, expects)
	if err != nil {
		return nil, err
	}
	dialer, err := shards.NewDialer(l.cfg.Name, []string{base}, config)
	if err != nil {
		return nil, err
	}
	if l.byURL == nil {
		l.byURL = map[string]*line{}
	}
	made := &line{dialer.Transport(), string(ca), authority, expects}
	l.byURL[base] = made
	return made.transport, nil
}

// keepOnly closes the connections to all but these.
func (l *lines) keepOnly(targets []target) {
	wanted := map[string]bool{}
	for _, t := range targets {
		wanted[t.url] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for base, one := range l.byURL {
		if !wanted[base] {
			one.transport.CloseIdleConnections()
			delete(l.byURL, base)
		}
	}
}

// close closes all connections that are not in use, and opens no more.
func (l *lines) close() {
	l.keepOnly(nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}
