package definition

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/loop"
)

// An export of another shard is read again each offerPeriod, as long as a binding names it: its shard tells nobody of a
// change (I9). What changes about the bindings has it read after offerRest at the earliest. However many exports there
// are, one is read each offerPace on average.
const (
	offerPeriod = 10 * time.Second
	offerRest   = time.Second
	offerPace   = 20 * time.Millisecond
)

// offers are the exports of other shards that bindings name, as this term has last read them. A new leader reads them
// anew, and needs none of them for what is bound already.
type offers struct {
	mu    sync.Mutex
	known map[key]offer
}

// offer is what was read of an export.
type offer struct {
	*controllers.Offer // nil: its shard has no such export
	read               time.Time
	// unfit says of schemas, by name, why they cannot be kept here.
	unfit map[string]string
}

func (o *offers) get(of key) (offer, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	known, ok := o.known[of]
	return known, ok
}

// set notes what was read, and returns when to read again.
func (o *offers) set(of key, now offer) (again time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known == nil {
		o.known = map[key]offer{}
	}
	o.known[of] = now
	return wait.Jitter(max(offerPeriod, time.Duration(len(o.known))*offerPace), 0.1)
}

func (o *offers) forget(of key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.known, of)
}

// same reports whether bindings come to the same with both.
func (o offer) same(as offer) bool {
	if o.Offer == nil || as.Offer == nil {
		return o.Offer == as.Offer
	}
	return o.Export.UID == as.Export.UID && o.Export.ResourceVersion == as.Export.ResourceVersion && maps.Equal(o.Schemas, as.Schemas) && maps.Equal(o.unfit, as.unfit)
}

// offerOf returns the key of the export of a binding, if it is another shard's.
func offerOf(b binding) (of key, foreign bool) {
	shard := controllers.ExportShardOf(b)
	return key{what: anOffer, of: controllers.ExportOf(b), shard: shard}, shard != ""
}

// takers returns the bindings of an export of another shard.
func (c *controller) takers(of key) (keys []key) {
	for _, b := range c.informers.APIBindings.ByIndex(controllers.ByExport, of.of.String()) {
		if at, foreign := offerOf(b); foreign && at == of {
			keys = append(keys, key{what: aBinding, of: clusters.KeyOf(b)})
		}
	}
	return keys
}

// followShards queues what waits for a shard, and what has to say that it is not heard.
func (c *controller) followShards() {
	c.On(loop.Source[key]{Synced: c.informers.APIBindings.Synced(), Register: func() (remove func()) {
		return c.others.Contact.Follow(func(shard string, heard bool) {
			defer c.Contain("event handler")
			for _, b := range c.informers.APIBindings.ByIndex(controllers.ByExportShard, shard) {
				if of, _ := offerOf(b); heard {
					c.Add(of)
				} else if !conditions.IsTrue(b, apisv1alpha2.InitialBindingCompleted) {
					c.Add(key{what: aBinding, of: clusters.KeyOf(b)})
				}
			}
		})
	}})
}

// pull reads an export of another shard, and queues its bindings if it has changed.
func (c *controller) pull(ctx context.Context, of key) error {
	takers := c.takers(of)
	if len(takers) == 0 {
		c.offers.forget(of)
		return nil
	}
	if c.others.Offers == nil || !c.others.Contact.Hears(of.shard) {
		return nil // it is queued when the shard is heard
	}
	if !c.others.Contact.Steady(of.shard) {
		c.AddAfter(of, offerRest) // most probably it would not answer
		return nil
	}
	was, known := c.offers.get(of)
	if rest := offerRest - time.Since(was.read); known && rest > 0 {
		c.AddAfter(of, rest)
		return nil
	}
	now := offer{read: time.Now(), unfit: map[string]string{}}
	var err error
	if now.Offer, err = c.others.Offers.Offer(ctx, of.shard, of.of, was.Offer); apierrors.IsNotFound(err) {
		now.Offer = nil
	} else if err != nil {
		return fmt.Errorf("read APIExport %s of cluster %s: %w", of.of.Name, of.of.Cluster, err)
	} else if err := c.probe(ctx, &now, was); err != nil {
		return err
	}
	c.AddAfter(of, c.offers.set(of, now))
	if !known || !now.same(was) {
		for _, taker := range takers {
			c.Add(taker)
		}
	}
	return nil
}

// probe finds schemas that this shard would not store: another one may have a later version, or lie.
func (c *controller) probe(ctx context.Context, now *offer, was offer) error {
	for of, s := range now.Schemas {
		if was.Offer != nil && was.Schemas[of] == s {
			if why, unfit := was.unfit[of]; unfit {
				now.unfit[of] = why
			}
			continue
		}
		err := c.makeCopy(ctx, s, metav1.CreateOptions{FieldManager: name, DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
			now.unfit[of] = errors.Unwrap(err).Error()
		} else if err != nil {
			return err
		}
	}
	return nil
}
