package mcr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/leader"
	"github.com/regent-project/regent/pkg/election/ranges"
)

// Options say how clusters are divided. The zero Options are good.
type Options struct {
	// Ranges is how many ranges there should be; 0 means 64. It bounds how many processes can work, and how evenly:
	// take some ten for each process. See package ranges for what happens when processes want different numbers.
	Ranges int
	// Warm are objects of the kinds whose informers begin in each cluster when it is engaged, also while another
	// process works there.
	Warm []client.Object
	// EngageTimeout is how long a controller may take to be engaged in a cluster; 0 means 10 s. It waits for the
	// informers of the cluster, and engages in no other meanwhile. One that takes longer is tried again later.
	EngageTimeout time.Duration
}

const (
	defaultRanges        = 64
	defaultEngageTimeout = 10 * time.Second
)

// Coordinator has this process work in its share of all clusters. It is one manager's, and for one Start.
type Coordinator struct {
	group    *leader.Group
	warm     []client.Object
	patience time.Duration // Options.EngageTimeout

	mu       sync.Mutex
	awares   []multicluster.Aware
	unbound  []error // controllers whose reconciles cannot be bound to terms
	of       int     // how many ranges there are; 0: this process has led none yet
	clusters map[multicluster.ClusterName]*engaged
	inRange  map[int]map[multicluster.ClusterName]*engaged // of all clusters, by the index of the range
	terms    map[int]*term                                 // what this process leads, by the index of the range
}

// engaged is a cluster that the provider has engaged.
type engaged struct {
	name    multicluster.ClusterName
	cluster cluster.Cluster
	ctx     context.Context //nolint:containedctx // its end is the end of the cluster
}

// New returns a Coordinator, and starts nothing. It returns the errors of leader.NewGroup.
func New(config *rest.Config, cfg leader.Config, o Options) (*Coordinator, error) {
	group, err := leader.NewGroup(config, cfg, cmp.Or(o.Ranges, defaultRanges))
	if err != nil {
		return nil, fmt.Errorf("mcr: %w", err)
	}
	return &Coordinator{
		group: group, warm: o.Warm, patience: cmp.Or(o.EngageTimeout, defaultEngageTimeout),
		clusters: map[multicluster.ClusterName]*engaged{}, inRange: map[int]map[multicluster.ClusterName]*engaged{}, terms: map[int]*term{},
	}, nil
}

// Group returns what elects this process, to ask for its Status and to step down. Do not call its Run or Start.
func (c *Coordinator) Group() *leader.Group { return c.group }

// AddAware implements mcmanager.Coordinator. It binds the reconciles of a controller to terms: see Bind.
func (c *Coordinator) AddAware(aware multicluster.Aware) {
	err := c.bind(aware)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.awares = append(c.awares, aware)
	if err != nil {
		c.unbound = append(c.unbound, err)
	}
	for _, t := range c.terms {
		t.wake()
	}
}

// Engage implements mcmanager.Coordinator. It returns at once: what is aware is told of the cluster when this process
// leads its range.
func (c *Coordinator) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	e := &engaged{name: name, cluster: cl, ctx: ctx}
	c.mu.Lock()
	if before := c.clusters[name]; before != nil && before.cluster == cl && before.ctx.Err() == nil {
		c.mu.Unlock()
		return nil
	}
	c.clusters[name] = e
	c.put(e)
	c.mu.Unlock()
	context.AfterFunc(ctx, func() { c.disengage(e) })
	for _, obj := range c.warm {
		if _, err := cl.GetCache().GetInformer(ctx, obj, cache.BlockUntilSynced(false)); err != nil {
			log.FromContext(ctx).Error(err, "Options.Warm: no informer begins before this process works in the cluster", "cluster", name, "object", fmt.Sprintf("%T", obj))
		}
	}
	return nil
}

// put adds a cluster to its range, and has a term of that look. The caller holds mu.
func (c *Coordinator) put(e *engaged) {
	if c.of == 0 {
		return
	}
	k := ranges.Of(string(e.name), c.of)
	if c.inRange[k] == nil {
		c.inRange[k] = map[multicluster.ClusterName]*engaged{}
	}
	c.inRange[k][e.name] = e
	if t := c.terms[k]; t != nil {
		t.wake()
	}
}

// disengage forgets a cluster that has ended, unless the provider has engaged another of its name since.
func (c *Coordinator) disengage(e *engaged) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clusters[e.name] != e {
		return
	}
	delete(c.clusters, e.name)
	if c.of > 0 {
		k := ranges.Of(string(e.name), c.of)
		delete(c.inRange[k], e.name)
		if t := c.terms[k]; t != nil {
			t.wake()
		}
	}
}

// Runnable implements mcmanager.Coordinator.
func (c *Coordinator) Runnable() manager.Runnable { return runnable{c} }

// runnable runs with the controllers. A manager that elects a leader itself runs neither on other processes: they must
// not lead what they would not work at.
type runnable struct{ *Coordinator }

// Start implements manager.Runnable.
func (r runnable) Start(ctx context.Context) error {
	r.mu.Lock()
	err := errors.Join(r.unbound...)
	r.mu.Unlock()
	if err != nil {
		return err
	}
	ctx = logr.NewContext(ctx, log.Log.WithName("coordinator"))
	if err := r.group.Run(ctx, r.lead); ctx.Err() == nil {
		return err
	}
	return nil
}

// lead works in the clusters of a range for one term.
func (c *Coordinator) lead(ctx context.Context, of ranges.Range, led election.Term) error {
	t := c.begin(ctx, of, led)
	for ctx.Err() == nil {
		t.engage(ctx)
		t.await(ctx)
	}
	c.end(t)
	t.reconciles.Wait()
	return nil
}

// begin makes the term one in which reconciles begin.
func (c *Coordinator) begin(ctx context.Context, of ranges.Range, led election.Term) *term {
	t := newTerm(ctx, c, of, led)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of != of.Of { // no terms of two numbers of ranges run at a time
		c.of, c.inRange = of.Of, map[int]map[multicluster.ClusterName]*engaged{}
		for _, e := range c.clusters {
			c.put(e)
		}
	}
	c.terms[of.Index] = t
	return t
}

// end has no further reconcile begin in the term.
func (c *Coordinator) end(t *term) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.terms, t.of.Index)
}

var _ mcmanager.Coordinator = (*Coordinator)(nil)
