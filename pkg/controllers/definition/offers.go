package definition

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// The shard of an export tells nobody of a change (I9). It is asked each offerNews which of its exports have changed,
// as long as a binding names one of them, and those are read again. Each is read again after offerPeriod in any case;
// and if the shard has had more changes than it can tell of, after overtaken, of which one for each offerPace. While
// its watches are broken it is not asked: most probably it would not answer.
const (
	offerNews   = 2 * time.Second
	offerWaver  = time.Second
	offerPeriod = 5 * time.Minute
	overtaken   = 10 * time.Second
	offerPace   = 20 * time.Millisecond
)

// offers are the exports of other shards that bindings name, as this term has last read them. A new leader reads them
// anew, and needs none of them for what is bound already.
type offers struct {
	mu    sync.Mutex
	known map[key]offer
	// tellers are the last processes that have told of changes, by shard. Each tells of all since it began.
	tellers map[string][]string
}

// offer is what was read of an export.
type offer struct {
	*controllers.Offer // nil: its shard has no such export
	read               time.Time
	change             string // the last one that its shard has told of
	// unfit says of schemas, by name, why they cannot be kept here.
	unfit map[string]string
}

func (o *offers) get(of key) (offer, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	known, ok := o.known[of]
	return known, ok
}

func (o *offers) set(of key, now offer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known == nil {
		o.known = map[key]offer{}
	}
	o.known[of] = now
}

// doubt has all offers of a shard read again when they are asked for next.
func (o *offers) doubt(shard string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for of, known := range o.known {
		if of.shard == shard {
			known.read = time.Time{}
			o.known[of] = known
		}
	}
}

// hear returns which offers of a shard are to be read again, by what that says of changes. some says that a binding
// names an offer of it.
func (o *offers) hear(shard string, news controllers.Changes) (again []key, some bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	begun := o.hasBegun(shard, news.By)
	late := time.Now().Add(-max(overtaken, time.Duration(len(o.known))*offerPace))
	for of, known := range o.known {
		if of.shard != shard {
			continue
		}
		some = true
		if change, changed := news.Exports[of.of]; changed && change != known.change {
			known.change, known.read = change, time.Time{}
		}
		if begun || !news.All && known.read.Before(late) {
			known.read = time.Time{}
		}
		if known.read.IsZero() {
			again = append(again, of)
		}
		o.known[of] = known
	}
	return again, some
}

// hasBegun reports whether a process of a shard tells for the first time: it has not heard of what changed before. The
// caller holds mu.
func (o *offers) hasBegun(shard, process string) bool {
	const remembered = 16 // more than a shard has replicas
	all := o.tellers[shard]
	if slices.Contains(all, process) {
		return false
	}
	if o.tellers == nil {
		o.tellers = map[string][]string{}
	}
	o.tellers[shard] = append(all[max(0, len(all)-remembered+1):len(all):len(all)], process)
	return true
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

// takers returns the bindings of the range of an export of another shard.
func (c *controller) takers(of key) (keys []key) {
	for _, b := range c.informers.APIBindings.ByIndex(controllers.ByExport, of.of.String()) {
		if k := (key{what: aBinding, of: clusters.KeyOf(b)}); c.Has(k) {
			if at, foreign := offerOf(b); foreign && at == of {
				keys = append(keys, k)
			}
		}
	}
	return keys
}

// followShards queues what waits for a shard, and what has to say that it is not heard.
func (c *controller) followShards() {
	c.On(loop.Source[key]{Synced: c.informers.APIBindings.Synced(), Register: func() (remove func()) {
		return c.others.Contact.Follow(func(shard string, heard bool) {
			defer c.Contain("event handler")
			c.offers.doubt(shard)
			asks := heard || c.isRemoved(shard)
			for _, b := range c.informers.APIBindings.ByIndex(controllers.ByExportShard, shard) {
				k := key{what: aBinding, of: clusters.KeyOf(b)}
				if of, _ := offerOf(b); asks && c.Has(k) {
					c.Add(of)
				} else if !heard && !conditions.IsTrue(b, apisv1alpha2.InitialBindingCompleted) {
					c.Add(k)
				}
			}
		})
	}})
}

// pull reads an export of another shard, and queues its bindings if it has changed.
func (c *controller) pull(ctx context.Context, of key) error {
	was, known := c.offers.get(of)
	if rest := offerPeriod - time.Since(was.read); known && rest > 0 {
		// nothing else is done for each change of each binding: an export may have thousands
		c.AddAfter(of, rest)
		return nil
	}
	if len(c.takers(of)) == 0 {
		c.offers.forget(of)
		return nil
	}
	if c.isRemoved(of.shard) {
		return c.locate(ctx, key{what: aHome, of: of.of, shard: of.shard})
	}
	if c.others.Offers == nil || !c.others.Contact.Hears(of.shard) {
		return nil // it is queued when the shard is heard
	}
	if !c.others.Contact.Steady(of.shard) {
		c.AddAfter(of, offerWaver)
		return nil
	}
	waiting, err := c.read(ctx, of, was, known)
	if err != nil {
		return err
	}
	for _, b := range waiting {
		c.Add(b)
	}
	c.AddAfter(of, wait.Jitter(offerPeriod, 0.1)) // not all at once
	c.AddAfter(key{what: aShard, shard: of.shard}, offerNews)
	return nil
}

// read reads an export of another shard, and returns the bindings for which something has changed.
func (c *controller) read(ctx context.Context, of key, was offer, known bool) (waiting []key, err error) {
	now := offer{read: time.Now(), change: was.change, unfit: map[string]string{}}
	if now.Offer, err = c.others.Offers.Offer(ctx, of.shard, of.of, was.Offer); apierrors.IsNotFound(err) {
		now.Offer = nil
	} else if err != nil {
		return nil, fmt.Errorf("read APIExport %s of cluster %s: %w", of.of.Name, of.of.Cluster, err)
	} else if err := c.probe(ctx, &now, was); err != nil {
		return nil, err
	}
	c.offers.set(of, now)
	if known && now.same(was) {
		return nil, nil
	}
	return c.takers(of), nil // asked now: one that has come while the export was read has not found it
}

// listen asks a shard which of its exports have changed, and goes on as long as a binding names one.
func (c *controller) listen(ctx context.Context, of key) error {
	if c.others.Contact.Steady(of.shard) {
		news, err := c.others.Offers.Changes(ctx, of.shard)
		if err != nil {
			return fmt.Errorf("ask which APIExports have changed: %w", err)
		}
		again, some := c.offers.hear(of.shard, news)
		if !some {
			return nil
		}
		for _, offer := range again {
			c.Add(offer)
		}
	}
	c.AddAfter(of, offerNews)
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
