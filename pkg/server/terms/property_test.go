package terms

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/server/loopback"
)

// tale is what befalls a shard of two replicas, with the election and the supervision that servers have, on a Lease
// in memory and in no real time.
type tale struct {
	policies [3]controllers.Policy
	// lives are what the controllers of a replica do, one life after the other; whoever has none left works.
	lives [2][3][]life
	steps []taleStep
}

// life is one instance of a controller.
type life struct {
	Does  string
	After time.Duration
	// Late is how long it goes on when it should have ended.
	Late time.Duration
}

type taleStep struct {
	What    string
	Replica int
	Pause   time.Duration
}

var tales = rapid.Custom(func(t *rapid.T) tale {
	upTo := func(limit time.Duration) time.Duration {
		return time.Duration(rapid.IntRange(0, int(limit/time.Millisecond)).Draw(t, "ms")) * time.Millisecond
	}
	var s tale
	for c := range s.policies {
		s.policies[c] = rapid.SampledFrom([]controllers.Policy{controllers.Restart, controllers.StepDown}).Draw(t, "policy")
		for r := range s.lives {
			s.lives[r][c] = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) life {
				return life{
					Does: rapid.SampledFrom([]string{"works", "works", "fails", "panics", "returns", "steps down", "is disabled",
						"stalls", "cannot be constructed", "constructs slowly"}).Draw(t, "does"),
					After: upTo(30 * time.Second),
					Late:  rapid.SampledFrom([]time.Duration{0, 0, time.Millisecond, time.Second, 20 * time.Second, time.Minute}).Draw(t, "late"),
				}
			}), 0, 6).Draw(t, "lives")
		}
	}
	s.steps = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) taleStep {
		return taleStep{
			What:    rapid.SampledFrom([]string{"wait", "take", "delete", "cut", "heal", "step down", "restart"}).Draw(t, "what"),
			Replica: rapid.IntRange(0, 1).Draw(t, "replica"), Pause: upTo(40 * time.Second),
		}
	}), 1, 15).Draw(t, "steps")
	return s
})

// cast plays a tale and judges it.
type cast struct {
	t     *testing.T
	tale  tale
	store *electiontest.Store

	mu     sync.Mutex
	left   [2][3][]life
	active [2]map[string]election.Term // what runs, by controller
	off    [2]map[string]election.Term // in which term a controller was disabled
	spans  []span
	broken string
}

// span is a time in which code of a term ran.
type span struct {
	who          string
	term         election.Term
	began, ended time.Time
}

func (c *cast) complain(format string, args ...any) {
	if c.broken == "" {
		c.broken = fmt.Sprintf(format, args...)
	}
}

// during runs code of a controller's, and has it noted.
func (c *cast) during(replica int, who string, term election.Term, code func() error) error {
	s := span{who: fmt.Sprintf("%s of replica %d", who, replica), term: term, began: time.Now()}
	c.mu.Lock()
	for other, of := range c.active[replica] {
		if other == who || of != term {
			c.complain("%s runs in epoch %d while %s runs in epoch %d", s.who, term.Epoch(), other, of.Epoch())
		}
	}
	c.active[replica][who] = term
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.active[replica], who)
		s.ended = time.Now()
		c.spans = append(c.spans, s)
	}()
	return code()
}

// descriptor is a controller of one replica; which term it is in says term.
func (c *cast) descriptor(replica, number int, term func() election.Term) controllers.Descriptor {
	name := fmt.Sprintf("c%d", number)
	return controllers.Descriptor{Name: name, New: func(ctx context.Context, _ controllers.Deps) (controllers.Controller, error) {
		in := term()
		c.mu.Lock()
		lived := life{Does: "works"}
		if left := c.left[replica][number]; len(left) > 0 {
			lived, c.left[replica][number] = left[0], left[1:]
		}
		c.mu.Unlock()
		err := c.during(replica, name, in, func() error {
			switch lived.Does {
			case "constructs slowly":
				time.Sleep(lived.After)
			case "cannot be constructed":
				return errors.New("boom")
			case "is disabled":
				c.mu.Lock()
				defer c.mu.Unlock()
				c.off[replica][name] = in
				return controllers.ErrDisabled
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		return &player{lived, func(code func() error) error { return c.during(replica, name, in, code) }}, nil
	}}
}

type player struct {
	life
	during func(func() error) error
}

func (p *player) Report() controllers.Health {
	if p.Does == "stalls" {
		return controllers.Health{Pending: 1}
	}
	return controllers.Health{}
}

func (p *player) Run(ctx context.Context) error {
	return p.during(func() error {
		var own <-chan time.Time
		if p.Does != "works" && p.Does != "stalls" && p.Does != "constructs slowly" {
			own = time.After(p.After)
		}
		select {
		case <-own:
		case <-ctx.Done():
			time.Sleep(p.Late)
			return ctx.Err()
		}
		switch p.Does {
		case "fails":
			return errors.New("boom")
		case "panics":
			panic("boom")
		case "steps down":
			return controllers.ErrStepDown
		default:
			return nil
		}
	})
}

// actor is one replica: what of a server leads, on an elector of its own.
type actor struct {
	client  *electiontest.Client
	elector *election.Elector
	stop    func()
}

func (c *cast) start(replica int) *actor {
	a := &actor{client: c.store.Client()}
	var current election.Term
	var set []controllers.Descriptor
	policies := controllers.Policies{Controllers: map[string]controllers.Policy{}}
	for number, policy := range c.tale.policies {
		d := c.descriptor(replica, number, func() election.Term { return current })
		set = append(set, d)
		policies.Controllers[d.Name] = policy
	}
	registry, err := controllers.NewRegistry(set...)
	if err != nil {
		c.t.Fatal(err)
	}
	cfg := election.DefaultConfig()
	cfg.Namespace, cfg.Name = "kube-system", "regent-controllers"
	cfg.Replica, cfg.Client, cfg.Cluster = fmt.Sprintf("host%d", replica), a.client, "system:admin"
	ctx, cancel := context.WithCancelCause(klog.NewContext(c.t.Context(), logr.Discard()))
	runner, err := New(Config{
		Lease: cfg.Name, Registry: registry, API: &loopback.Server{}, Warn: func(string) {}, Exit: cancel,
		Supervision: supervisor.Config{DrainTimeout: cfg.EffectiveDrainTimeout(), Policies: policies},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	lead := runner.Leader(controllers.LeaderOnly, controllers.Electing)
	if a.elector, err = election.New(cfg); err != nil {
		c.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = a.elector.Run(ctx, func(ctx context.Context, term election.Term) error {
			current = term // before anything of it runs, and after everything of the one before has
			err := lead(ctx, term)
			if _, _, ok := runner.Term(0); ok {
				c.complain("epoch %d goes on, as its runner says, after its end", term.Epoch())
			}
			return err
		})
	}()
	a.stop = func() {
		cancel(errors.New("told to stop"))
		<-ended
		a.client.Wait()
	}
	return a
}

// works reports whether a replica leads, and all its controllers run that were not disabled in this term.
func (c *cast) works(replica int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.active[replica])
	for _, of := range c.off[replica] {
		if of.Token().Holder == c.store.Holder() {
			n++
		}
	}
	return n == len(c.tale.policies)
}

// judge holds what ran against what the Lease said: nobody released it while code of the term still ran (I6).
func (c *cast) judge() {
	before := ""
	for _, change := range c.store.History() {
		if change.Holder() == "" && change.Type != "DELETED" {
			for _, s := range c.spans {
				if s.term.Token().Holder == before && s.began.Before(change.At) && s.ended.After(change.At) {
					c.complain("the lease of epoch %d was released although %s ran for %v more", s.term.Epoch(), s.who, s.ended.Sub(change.At))
				}
			}
		}
		before = change.Holder()
	}
}

// I1 and I6, whatever controllers and the world do: in a process the controllers of one term at most run, each once; a
// lease is released only when everything of its term is joined; and when all is well again, one replica leads.
func TestWhateverControllersDoTermsAreAloneAndReleasedWhenJoined(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		told := tales.Draw(rt, "tale")
		var broken string
		synctest.Test(t, func(t *testing.T) { broken = play(t, told) })
		if broken != "" {
			rt.Fatal(broken)
		}
	})
}

func play(t *testing.T, told tale) string {
	t.Helper()
	c := &cast{t: t, tale: told, store: electiontest.NewStore("regent-controllers"), left: told.lives}
	var actors [2]*actor
	for i := range actors {
		c.active[i], c.off[i] = map[string]election.Term{}, map[string]election.Term{}
		actors[i] = c.start(i)
	}
	for _, step := range told.steps {
		switch a := actors[step.Replica]; step.What {
		case "take":
			c.store.Take("stranger", 5*time.Second)
		case "delete":
			c.store.Delete()
		case "cut":
			a.client.Always(electiontest.Fault{Err: errors.New("cut off")})
		case "heal":
			a.client.Always(electiontest.Fault{})
		case "step down":
			_, _ = a.elector.StepDown("told to", "")
		case "restart":
			a.stop()
			actors[step.Replica] = c.start(step.Replica)
		}
		time.Sleep(step.Pause)
	}
	for _, a := range actors {
		a.client.Always(electiontest.Fault{})
	}
	time.Sleep(30 * time.Minute) // all lives and back-offs
	leading := 0
	for i := range actors {
		if c.works(i) {
			leading++
		}
	}
	if leading != 1 {
		c.complain("%d replicas lead with all their controllers in the end", leading)
	}
	for _, a := range actors {
		a.stop()
	}
	c.judge()
	return c.broken
}
