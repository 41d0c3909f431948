package ask

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/regent-project/regent/pkg/server/status"
)

// Installation returns all shards, as far as they answer.
func (c *Client) Installation(ctx context.Context) (status.Installation, error) {
	var of status.Installation
	err := c.get(ctx, status.InstallationPath, &of)
	return of, err
}

// Terms returns the history of a shard of an installation.
func (c *Client) Terms(ctx context.Context, of status.Installation, shard string) (status.Terms, error) {
	var terms status.Terms
	_, err := first(ctx, c.shard(of, shard), status.TermsPath, &terms, nil)
	for n, latest := 0, find(of, shard).Terms; n < len(terms.Terms); n++ {
		t := &terms.Terms[n]
		same := slices.IndexFunc(latest, t.Is)
		if t.Trigger == "" && same >= 0 { // whoever was asked may not have read the leader's record yet
			t.Trigger = latest[same].Trigger
		}
	}
	return terms, err
}

// Stacks returns what each replica of a shard says of itself, with the stacks of one controller. Replicas that cannot
// be asked from here are as they are in the installation.
func (c *Client) Stacks(ctx context.Context, of status.Installation, shard, controller string) []status.Replica {
	query := "?stacks=" + url.QueryEscape(controller)
	var replicas []status.Replica
	for _, r := range find(of, shard).Replicas {
		var itself status.Replica
		if r.URL != "" && r.Fault == "" && c.places[0].At(r.URL).do(ctx, "GET", status.ReplicaPath+query, nil, &itself) == nil {
			r = itself
		}
		replicas = append(replicas, r)
	}
	return replicas
}

// Metrics returns a replica's metrics in Prometheus' text format.
func (c *Client) Metrics(ctx context.Context, of status.Installation, r status.Replica) ([]byte, error) {
	var text []byte
	places := c.replica(of, r)
	if len(places) == 0 {
		return nil, fmt.Errorf("replica %s has not told its URL", r.Name)
	}
	_, err := first(ctx, places, "/metrics", &text, nil)
	return text, err
}

// Top returns what a replica has counted of its clients' requests.
func (c *Client) Top(ctx context.Context, of status.Installation, r status.Replica) (top status.Top, err error) {
	places := c.replica(of, r)
	if len(places) == 0 {
		return top, fmt.Errorf("replica %s has not told its URL", r.Name)
	}
	_, err = first(ctx, places, status.TopPath, &top, nil)
	return top, err
}

// replica returns where a replica can be asked itself. That it is asked through a balancer is sure only if it is alone.
func (c *Client) replica(of status.Installation, r status.Replica) (places []Place) {
	if r.URL != "" {
		places = append(places, c.places[0].At(r.URL))
	}
	if len(of.Shards) == 1 && len(of.Shards[0].Replicas) == 1 {
		places = append(places, c.places[0])
	}
	return places
}

// shard returns where a shard can be asked: the server itself if the shard is alone, a front, and the shard's replicas,
// its leader first.
func (c *Client) shard(of status.Installation, name string) (places []Place) {
	if len(of.Shards) == 1 {
		places = append(places, c.places[0])
	} else if front, ok := c.places[0].ofShard(name); ok {
		places = append(places, front)
	}
	s := find(of, name)
	for _, leads := range []bool{true, false} {
		for _, r := range s.Replicas {
			if r.URL != "" && s.LedBy(r) == leads {
				places = append(places, c.places[0].At(r.URL))
			}
		}
	}
	return places
}

func find(of status.Installation, shard string) status.Shard {
	for _, s := range of.Shards {
		if s.Name == shard {
			return s
		}
	}
	return status.Shard{}
}

// ErrAmbiguous says that a shard must be named.
var ErrAmbiguous = errors.New("there are several shards")

// OneShard returns the shard of that name, or the only one if there is no name.
func OneShard(of status.Installation, name string) (status.Shard, error) {
	if name == "" && len(of.Shards) == 1 {
		return of.Shards[0], nil
	}
	var names []string
	for _, s := range of.Shards {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	if name == "" {
		return status.Shard{}, fmt.Errorf("%w, give --shard: one of %s", ErrAmbiguous, strings.Join(names, ", "))
	}
	return status.Shard{}, fmt.Errorf("there is no shard %q: there are %s", name, strings.Join(names, ", "))
}
