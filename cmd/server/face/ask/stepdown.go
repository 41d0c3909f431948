package ask

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/status"
)

// Succession is a change of the leader that was asked for.
type Succession struct {
	Shard string `json:"shard"`
	// Range is the one that was handed over. Nil: the shard has one leader.
	Range *int `json:"range,omitempty"`
	// From led in epoch Before. To leads in epoch After. Both To and After are zero if nobody has been seen to lead
	// since. They are the same as From and Before if To led already, and nothing was to be done.
	From   string `json:"from"`
	Before int64  `json:"epochBefore"`
	To     string `json:"to,omitempty"`
	After  int64  `json:"epochAfter,omitempty"`
	// Took is for how many seconds this program waited, from its request to the answer that showed the next leader.
	Took float64 `json:"tookSeconds"`
}

// Wish is what the leader of a shard is asked for.
type Wish struct {
	// Reason is written on the Lease. To is the replica that should lead next; empty: any.
	Reason string `json:"reason"`
	To     string `json:"to"`
	// Epoch is that of the term that is to end; 0: whichever goes on. Range is which range is to be handed over;
	// nil: the shard has one leader.
	Epoch int64 `json:"-"`
	Range *int  `json:"-"`
}

// What says what was handed over, for people.
func (s Succession) What() string {
	if s.Range == nil {
		return "shard " + s.Shard
	}
	return fmt.Sprintf("range %d of shard %s", *s.Range, s.Shard)
}

// LedAlready reports whether the replica that should lead next led already.
func (s Succession) LedAlready() bool { return s.After != 0 && s.After == s.Before }

// StepDown has the leader of a shard hand over. It returns once the leader has agreed, or at once if it is the replica
// that should lead next. Any replica of the shard may be asked: it passes the wish on. So the first that is
// there is asked, and no other one: if its answer is lost, that one might end the next leader's term, too.
func (c *Client) StepDown(ctx context.Context, of status.Installation, shard status.Shard, wish Wish) (Succession, error) {
	body, err := json.Marshal(wish)
	if err != nil {
		return Succession{}, err
	}
	var answer struct {
		Replica string `json:"replica"`
		Epoch   int64  `json:"epoch"`
		GoesOn  bool   `json:"goesOn"`
	}
	path := routing.StepDownPath + "?shard=" + url.QueryEscape(shard.Name)
	if wish.Epoch != 0 {
		path += fmt.Sprintf("&epoch=%d", wish.Epoch)
	}
	if wish.Range != nil {
		path += fmt.Sprintf("&range=%d", *wish.Range)
	}
	err = fmt.Errorf("no replica of shard %s can be asked from here: none has told its URL", shard.Name)
	for _, place := range c.shard(of, shard.Name) {
		if err = place.do(ctx, http.MethodPost, path, body, &answer); !NeverSent(err) {
			break
		}
	}
	if err != nil {
		return Succession{}, fmt.Errorf("the leader of shard %s has not agreed to hand over: %w", shard.Name, err)
	}
	change := Succession{Shard: shard.Name, Range: wish.Range, From: answer.Replica, Before: answer.Epoch}
	if answer.GoesOn {
		change.To, change.After = change.From, change.Before
	}
	return change, nil
}

const (
	// succeededPeriod is the pause between two looks whether somebody leads.
	succeededPeriod = 20 * time.Millisecond
	// electionPatience is how long a replica that hangs may hold up such a look.
	electionPatience = time.Second
)

// AwaitSuccessor waits until somebody leads a shard in a later term than s.Before, and returns which. began is when the
// request was sent. It does not wait if the one that should lead led already.
func (c *Client) AwaitSuccessor(ctx context.Context, of status.Installation, s Succession, began time.Time) (Succession, error) {
	if s.LedAlready() {
		return s, nil
	}
	tick := time.NewTicker(succeededPeriod)
	defer tick.Stop()
	for {
		for _, e := range c.elections(ctx, of, s) {
			// who stands by says so, too: the leader may not be reached from here
			if e.Leader != "" && e.Epoch > s.Before {
				s.To, s.After, s.Took = e.Leader, e.Epoch, time.Since(began).Seconds()
				return s, nil
			}
		}
		select {
		case <-ctx.Done():
			s.Took = time.Since(began).Seconds()
			return s, fmt.Errorf("%s has given the lease up, and nobody has been seen to lead %s since: see regent status", s.From, s.What())
		case <-tick.C:
		}
	}
}

// elections returns what the replicas of a shard say of the election of a range, those that can be asked at once and
// side by side. If none can, the whole installation is asked.
func (c *Client) elections(ctx context.Context, of status.Installation, s Succession) (all []status.Election) {
	soon, cancel := context.WithTimeout(ctx, electionPatience)
	defer cancel()
	replicas := find(of, s.Shard).Replicas
	answers := make([]status.Replica, len(replicas))
	var asking sync.WaitGroup
	for i, r := range replicas {
		if r.URL == "" {
			continue
		}
		asking.Go(func() {
			if err := c.places[0].At(r.URL).do(soon, http.MethodGet, status.ReplicaPath, nil, &answers[i]); err != nil {
				answers[i] = status.Replica{Fault: err.Error()}
			}
		})
	}
	asking.Wait()
	for _, r := range answers {
		if r.Name != "" {
			all = append(all, electionOf(r, s.Range))
		}
	}
	if len(all) > 0 {
		return all
	}
	now, err := c.Installation(ctx)
	if err != nil {
		return nil
	}
	for _, r := range find(now, s.Shard).Replicas {
		all = append(all, electionOf(r, s.Range))
	}
	return all
}

// electionOf returns what a replica says of the election of a range. A leader says so by its own name.
func electionOf(r status.Replica, index *int) status.Election {
	e := r.Election
	if index != nil && r.Ranges != nil && *index < len(r.Ranges.Ranges) {
		of := r.Ranges.Ranges[*index]
		e = status.Election{State: of.State, Epoch: of.Epoch, Leader: of.Leader}
	}
	if e.State == status.StateLeading {
		e.Leader = r.Name
	}
	return e
}
