// Package leasecandidate elects the holders of Leases that have LeaseCandidates: the coordinated leader election of
// KEP-4355, in all logical clusters. Candidates are client-go's, unmodified.
package leasecandidate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/loop"
)

const (
	name    = "leasecandidate"
	workers = 8
)

// Descriptor describes the controller to a registry.
func Descriptor() controllers.Descriptor {
	// It does not need bootstrap: bootstrap runs on the leader, which this controller may have to elect first.
	return controllers.Descriptor{Name: name, Scope: controllers.Electing, New: construct}
}

type controller struct {
	*loop.Loop[clusters.Key] // keys of Leases
	leases                   *clusters.Informer[*coordinationv1.Lease]
	candidates               *clusters.Informer[*coordinationv1beta1.LeaseCandidate]
	kube                     kubernetes.Interface
	own                      clusters.Key // the Lease of its own term, for which it must not elect
	old                      map[types.UID]bool

	mu       sync.Mutex
	memories map[clusters.Key]*memory // each is used only by the worker that reconciles the key
}

func construct(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
	c := &controller{
		leases:     deps.Informers.Leases,
		candidates: deps.Informers.LeaseCandidates,
		kube:       deps.Clients.Kube,
		own:        clusters.Key{Cluster: deps.Token.Cluster, Namespace: deps.Token.Namespace, Name: deps.Token.Name},
		old:        map[types.UID]bool{},
		memories:   map[clusters.Key]*memory{},
	}
	for _, obj := range c.candidates.List(clusters.Wildcard) {
		c.old[obj.UID] = true
	}
	c.Loop = loop.New(deps.Range, name, workers, c.reconcile)
	loop.Watch(c.Loop, c.candidates, func(c *coordinationv1beta1.LeaseCandidate) []clusters.Key {
		return []clusters.Key{controllers.LeaseOf(c)}
	})
	loop.Watch(c.Loop, c.leases, c.coordinated)
	return c, nil
}

// coordinated returns the Lease's key if it has candidates, or had some in this term.
func (c *controller) coordinated(lease *coordinationv1.Lease) []clusters.Key {
	key := clusters.KeyOf(lease)
	if c.remembers(key) || len(c.candidates.ByIndex(controllers.ByLease, key.String())) > 0 {
		return []clusters.Key{key}
	}
	return nil
}

func (c *controller) remembers(key clusters.Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.memories[key] != nil
}

// memoryOf returns the memory of a key. If nothing is left to remember, it deletes the memory and returns nil.
func (c *controller) memoryOf(key clusters.Key, anything bool) *memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !anything {
		delete(c.memories, key)
		return nil
	}
	m, ok := c.memories[key]
	if !ok {
		m = &memory{old: c.old}
		c.memories[key] = m
	}
	return m
}

// reconcile takes one election as far as it can get now. A conflict is no error: the informers have delivered the
// change, or will, and queue the key again.
func (c *controller) reconcile(ctx context.Context, key clusters.Key) error {
	if key == c.own {
		return nil
	}
	candidates := c.candidates.ByIndex(controllers.ByLease, key.String())
	lease, ok := c.leases.Get(key)
	if !ok {
		lease = nil
	}
	m := c.memoryOf(key, lease != nil || len(candidates) > 0)
	if m == nil {
		return nil
	}
	now := time.Now()
	d := decide(m.look(lease, candidates, now), now)
	if m.conflicted(d.conflict) && d.conflict != nil {
		klog.FromContext(ctx).Error(d.conflict, "No holder is elected: change a candidate's strategy or binary version, or delete it", "lease", key)
	}
	ctx = clusters.With(ctx, key.Cluster)
	errs := []error{c.write(ctx, key, lease, d, m)}
	for _, one := range d.ask {
		_, err := c.kube.CoordinationV1beta1().LeaseCandidates(key.Namespace).Update(ctx, question(one.LeaseCandidate), metav1.UpdateOptions{FieldManager: name})
		errs = append(errs, ignoreStale(err))
	}
	for _, one := range d.expired {
		klog.FromContext(ctx).Info("Deleting a candidate that has given no sign of life for too long", "candidate", one.Name, "lease", key, "silent", now.Sub(one.sign()))
		err := c.kube.CoordinationV1beta1().LeaseCandidates(key.Namespace).Delete(ctx, one.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &one.UID, ResourceVersion: &one.ResourceVersion},
		})
		errs = append(errs, ignoreStale(err))
	}
	if !d.due.IsZero() {
		c.AddAfter(key, max(0, time.Until(d.due)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("election for the Lease %s: %w", key, err)
	}
	return nil
}

// write writes the decision to the Lease.
func (c *controller) write(ctx context.Context, key clusters.Key, lease *coordinationv1.Lease, d decision, m *memory) error {
	out := d.write(lease, m.epoch, time.Now())
	if out == nil {
		return nil
	}
	if d.elect != "" && *out.Spec.LeaseTransitions <= 0 {
		return fmt.Errorf("its leaseTransitions have reached %d, the highest number: delete the Lease", math.MaxInt32)
	}
	log := klog.FromContext(ctx).WithValues("lease", key)
	leases := c.kube.CoordinationV1().Leases(key.Namespace)
	var err error
	if lease == nil {
		out.Name = key.Name
		if _, err = leases.Create(ctx, out, metav1.CreateOptions{FieldManager: name}); apierrors.IsForbidden(err) {
			return nil // the namespace or the whole cluster is being deleted, and the candidates with it
		}
	} else {
		_, err = leases.Update(ctx, out, metav1.UpdateOptions{FieldManager: name})
	}
	switch {
	case err != nil:
	case d.elect != "":
		log.Info("Elected", "holder", d.elect, "electionEpoch", *out.Spec.LeaseTransitions)
	case d.prefer != nil && *d.prefer != "":
		log.Info("Asked the holder to make way", "holder", ptr.Deref(out.Spec.HolderIdentity, ""), "preferred", *d.prefer)
	case d.prefer != nil:
		log.Info("The holder may stay", "holder", ptr.Deref(out.Spec.HolderIdentity, ""))
	}
	return ignoreStale(err)
}

// ignoreStale ignores errors which mean that an object has changed since the decision, is gone, or was created by
// somebody else.
func ignoreStale(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

var _ controllers.Reporter = (*controller)(nil)
