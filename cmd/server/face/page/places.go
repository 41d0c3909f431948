package page

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/regent-project/regent/cmd/server/face/ask"
	"github.com/regent-project/regent/pkg/server/fetch"
	"github.com/regent-project/regent/pkg/server/status"
)

// places are the servers that can be asked: those of the kubeconfig, and the replicas of the root shard of which these
// have told. The one that answered last is asked first. All methods may be called on any goroutine.
type places struct {
	mu       sync.Mutex
	servers  []ask.Place
	replicas []ask.Place
	first    string                  // the host that answered last
	each     time.Duration           // how long one may take
	largest  int64                   // how many bytes an answer may have
	clients  map[string]*http.Client // by host
}

func newPlaces(servers []ask.Place) *places {
	return &places{servers: servers, clients: map[string]*http.Client{}, each: patience, largest: maxAnswer}
}

type question struct {
	method, uri, contentType string
	body                     []byte
}

// list returns the places in the order in which they are asked.
func (p *places) list() []ask.Place {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []ask.Place
	for _, place := range slices.Concat(p.servers, p.replicas) {
		switch host := place.Config.Host; {
		case slices.ContainsFunc(all, func(a ask.Place) bool { return a.Config.Host == host }):
		case host == p.first:
			all = slices.Insert(all, 0, place)
		default:
			all = append(all, place)
		}
	}
	return all
}

// learn takes the replicas of the root shard out of an answer, to ask them when the servers of the kubeconfig do not
// answer.
func (p *places) learn(body []byte) {
	var of status.Installation
	if err := json.Unmarshal(body, &of); err != nil {
		return
	}
	var replicas []ask.Place
	for _, shard := range of.Shards {
		for _, r := range shard.Replicas {
			if shard.Name == of.Root && r.URL != "" {
				replicas = append(replicas, p.servers[0].At(r.URL))
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(replicas) > 0 {
		p.replicas = replicas
	}
}

// ask asks one place after the other. An answer that another one may give better (5xx) is returned if none does. A
// write is sent to another place only if it was not sent.
func (p *places) ask(ctx context.Context, q question) (*fetch.Answer, error) {
	var faults []error
	var worst *fetch.Answer
	for _, place := range p.list() {
		got, err := p.askOne(ctx, place, q)
		switch {
		case err == nil && got.Code < http.StatusInternalServerError:
			p.mu.Lock()
			p.first = place.Config.Host
			p.mu.Unlock()
			return got, nil
		case err == nil:
			worst = got
		default:
			faults = append(faults, fmt.Errorf("%s: %w", place.Config.Host, err))
		}
		if ctx.Err() != nil || (q.method != http.MethodGet && !ask.NeverSent(err)) {
			break
		}
	}
	if worst != nil {
		return worst, nil
	}
	return nil, errors.Join(faults...)
}

func (p *places) askOne(ctx context.Context, place ask.Place, q question) (*fetch.Answer, error) {
	client, err := p.client(place)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.each)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, q.method, place.Config.Host+q.uri, bytes.NewReader(q.body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if q.contentType != "" {
		req.Header.Set("Content-Type", q.contentType)
	}
	return fetch.Do(client.Do, req, p.largest)
}

func (p *places) client(place ask.Place) (*http.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.clients[place.Config.Host]; c != nil {
		return c, nil
	}
	c, err := place.Client()
	if err != nil {
		return nil, err
	}
	p.clients[place.Config.Host] = c
	return c, nil
}

// close closes all connections that are not in use.
func (p *places) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.clients {
		c.CloseIdleConnections()
	}
}
