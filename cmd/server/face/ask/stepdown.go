package ask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/status"
)

// Succession is a change of the leader that was asked for.
type Succession struct {
	Shard string `json:"shard"`
	// From led in epoch Before. To leads in epoch After. Both To and After are zero if nobody has been seen to lead since.
	From   string `json:"from"`
	Before int64  `json:"epochBefore"`
	To     string `json:"to,omitempty"`
	After  int64  `json:"epochAfter,omitempty"`
	// Took is for how many seconds this program waited, from its request to the answer that showed the next leader.
	Took float64 `json:"tookSeconds"`
}

// stepDownAttempts is how often a balancer is asked, which may lead to any replica, until it has led to the leader.
const stepDownAttempts = 20

// StepDown asks the leader of a shard to hand over, to a certain replica if to is not empty. It returns once the leader has agreed.
func (c *Client) StepDown(ctx context.Context, of status.Installation, shard status.Shard, reason, to string) (Succession, error) {
	body, err := json.Marshal(map[string]string{"reason": reason, "to": to})
	if err != nil {
		return Succession{}, err
	}
	var answer struct {
		Replica string `json:"replica"`
		Epoch   int64  `json:"epoch"`
	}
	var faults []error
	for _, place := range c.leader(of, shard) {
		err := place.do(ctx, http.MethodPost, routing.StepDownPath, body, &answer)
		if err == nil {
			return Succession{Shard: shard.Name, From: answer.Replica, Before: answer.Epoch}, nil
		}
		var refusal *Error
		if errors.As(err, &refusal) && refusal.Code != http.StatusConflict && refusal.Code < http.StatusInternalServerError {
			return Succession{}, err
		}
		faults = append(faults, err)
	}
	if len(faults) == 0 {
		return Succession{}, fmt.Errorf("nobody is known to lead shard %s, and no server of it can be asked", shard.Name)
	}
	return Succession{}, fmt.Errorf("the leader of shard %s could not be asked: %w", shard.Name, faults[len(faults)-1])
}

// leader returns where the leader may be reached: its own URL, and then whatever leads to any replica, as often as it takes.
func (c *Client) leader(of status.Installation, shard status.Shard) (places []Place) {
	for _, r := range shard.Replicas {
		if r.Name == shard.Leader && r.URL != "" {
			places = append(places, c.places[0].At(r.URL))
		}
	}
	if all := c.shard(of, shard.Name); len(all) > 0 {
		for range stepDownAttempts {
			places = append(places, all[0])
		}
	}
	return places
}

const (
	// succeededPeriod is the pause between two looks whether somebody leads.
	succeededPeriod = 20 * time.Millisecond
	// electionPatience is how long a replica that hangs may hold up such a look.
	electionPatience = time.Second
)

// Succeeded waits until somebody leads a shard in a later term than s.Before, and returns who. began is when the request was sent.
func (c *Client) Succeeded(ctx context.Context, of status.Installation, s Succession, began time.Time) (Succession, error) {
	tick := time.NewTicker(succeededPeriod)
	defer tick.Stop()
	for {
		for _, e := range c.elections(ctx, of, s.Shard) {
			if e.State == "leading" && e.Epoch > s.Before {
				s.To, s.After, s.Took = e.Leader, e.Epoch, time.Since(began).Seconds()
				return s, nil
			}
		}
		select {
		case <-ctx.Done():
			s.Took = time.Since(began).Seconds()
			return s, fmt.Errorf("%s has given the lease up, and nobody has been seen to lead shard %s since: see regent status", s.From, s.Shard)
		case <-tick.C:
		}
	}
}

// elections returns what the replicas of a shard say of their election, those that can be asked at once and side by side. If none can, the whole
// installation is asked.
func (c *Client) elections(ctx context.Context, of status.Installation, shard string) (all []status.Election) {
	soon, cancel := context.WithTimeout(ctx, electionPatience)
	defer cancel()
	replicas := find(of, shard).Replicas
	answers := make([]status.Replica, len(replicas))
	var asked sync.WaitGroup
	for i, r := range replicas {
		if r.URL == "" {
			continue
		}
		asked.Go(func() {
			if err := c.places[0].At(r.URL).do(soon, http.MethodGet, status.ReplicaPath, nil, &answers[i]); err != nil {
				answers[i] = status.Replica{Fault: err.Error()}
			}
		})
	}
	asked.Wait()
	for _, r := range answers {
		if r.Name != "" {
			all = append(all, named(r))
		}
	}
	if len(all) > 0 {
		return all
	}
	now, err := c.Installation(ctx)
	if err != nil {
		return nil
	}
	for _, r := range find(now, shard).Replicas {
		all = append(all, named(r))
	}
	return all
}

// named returns a replica's election. Who leads says so by its own name.
func named(r status.Replica) status.Election {
	e := r.Election
	if e.State == "leading" {
		e.Leader = r.Name
	}
	return e
}
