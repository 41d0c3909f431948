package shards

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// replicas are those of one shard, in the order in which they are tried: the one that served last comes first, and
// those that have failed come last. So one that is dead costs its timeout once, and not whenever it is its turn. All
// methods may be called at any time on any goroutine.
type replicas struct {
	mu    sync.Mutex
	order []*url.URL
}

// set sets the replicas, before anything else is called. It changes nothing if urls are faulty.
func (r *replicas) set(shard string, urls []string) error {
	var order []*url.URL
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "https" || u.Hostname() == "" {
			return fmt.Errorf("shard %s has a faulty URL, %q: correct it with regent shard set %s --replica=https://<host>:<port>", shard, text, shard)
		}
		order = append(order, u)
	}
	if len(order) == 0 {
		return fmt.Errorf("shard %s has no URL: give it one with regent shard set %s --replica=https://<host>:<port>", shard, shard)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.order = order
	return nil
}

// try calls do with one replica after the other until it succeeds or ctx ends, and tells it of the last one. The error
// has those of all that were tried, which must name their replica.
func (r *replicas) try(ctx context.Context, do func(replica *url.URL, last bool) error) error {
	var failed attempts
	order := r.list()
	for n, replica := range order {
		err := do(replica, n == len(order)-1)
		if err == nil {
			r.putFirst(replica)
			return nil
		}
		failed = append(failed, err)
		if !errors.Is(ctx.Err(), context.Canceled) { // that would not be the replica's fault
			r.putLast(replica)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return failed
}

func (r *replicas) list() []*url.URL {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.order)
}

func (r *replicas) putFirst(replica *url.URL) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.order = slices.Insert(r.others(replica), 0, replica)
}

func (r *replicas) putLast(replica *url.URL) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.order = append(r.others(replica), replica)
}

// others takes a replica out of the order. The caller holds mu, and puts the replica back.
func (r *replicas) others(replica *url.URL) []*url.URL {
	return slices.DeleteFunc(r.order, func(one *url.URL) bool { return one == replica })
}

// attempts are the errors of replicas that were tried.
type attempts []error

// Error implements error, in one line.
func (a attempts) Error() string {
	texts := make([]string, len(a))
	for n, err := range a {
		texts[n] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap is for errors.Is and errors.As.
func (a attempts) Unwrap() []error { return a }
