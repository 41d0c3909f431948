package serviceaccounts

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	josejson "gopkg.in/go-jose/go-jose.v2/json"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/server/status"
)

const (
	// lookEvery is how often Run looks which shards are heard. It asks a shard for its keys when it begins to be
	// heard, again after keysFor, and after retryAfter if it has not answered. A key that a shard accepts no more
	// is refused earlier: each Question names it.
	lookEvery, retryAfter, keysFor = 200 * time.Millisecond, 10 * time.Second, time.Minute
)

// publisher is a shard that has published keys.
type publisher struct {
	shard string
	*Issuer
}

// publishedKeys has the keys of the other shards. Run is the only one that changes it.
type publishedKeys struct {
	byShard atomic.Pointer[map[string]*learned]
}

// learned is what a shard has published. It is not changed.
type learned struct {
	issuer *Issuer // nil: it has not answered yet
	asked  time.Time
	fault  error // of the last question
}

// publishing returns the shards that have published a key, by its id: mostly one, or none. All have if their operator
// gives all the same key.
func (p *publishedKeys) publishing(key string) []publisher {
	known := p.byShard.Load()
	if known == nil || key == "" {
		return nil
	}
	var out []publisher
	for _, shard := range slices.Sorted(maps.Keys(*known)) {
		if issuer := (*known)[shard].issuer; issuer != nil {
			if _, ok := issuer.Keys.accepted[key]; ok {
				out = append(out, publisher{shard, issuer})
			}
		}
	}
	return out
}

// keyOf returns the id of the key that a token in compact form says has signed it, and nothing if it does not say. It
// proves nothing. It decodes as the verification of signatures does, which takes no name twice, nor in another case.
func keyOf(token string) string {
	header, rest, ok := strings.Cut(token, ".")
	if !ok || len(token) > maxTokenLength || strings.Count(rest, ".") != 1 || strings.ContainsAny(token, "{\" \t\r\n") {
		return ""
	}
	decoded, err := base64.RawURLEncoding.DecodeString(header)
	if err != nil {
		return ""
	}
	var says struct {
		Key string `json:"kid"`
	}
	if josejson.Unmarshal(decoded, &says) != nil {
		return ""
	}
	return says.Key
}

// Run asks the other shards for their keys until ctx ends. It returns when all asking has ended. Call it once.
func (o *Others) Run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		o.learn(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// learn asks the shards whose keys are not known, or old, all at once, and forgets those that are no members any more.
func (o *Others) learn(ctx context.Context) {
	before := map[string]*learned{}
	if known := o.keys.byShard.Load(); known != nil {
		before = *known
	}
	var mu sync.Mutex
	now := map[string]*learned{}
	var asking sync.WaitGroup
	for shard, heard := range o.peers.Hears() {
		was := before[shard]
		if was == nil {
			was = &learned{}
		}
		if !heard || !was.isDue(time.Now()) {
			mu.Lock()
			now[shard] = was
			mu.Unlock()
			continue
		}
		asking.Go(func() {
			is := o.learnOf(ctx, shard, was)
			mu.Lock()
			defer mu.Unlock()
			now[shard] = is
		})
	}
	asking.Wait()
	o.keys.byShard.Store(&now)
}

func (l *learned) isDue(now time.Time) bool {
	if l.fault != nil {
		return now.Sub(l.asked) >= retryAfter
	}
	return now.Sub(l.asked) >= keysFor
}

// learnOf asks a shard for its keys. Those of before stay if it does not answer.
func (o *Others) learnOf(ctx context.Context, shard string, was *learned) *learned {
	asked := time.Now()
	issuer, err := o.askForKeys(ctx, shard)
	if err == nil {
		return &learned{issuer: issuer, asked: asked}
	}
	if was.fault == nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Another shard does not publish the keys of its service accounts' tokens: those of its accounts that have new keys are refused here until it does", "peer", shard)
	}
	return &learned{issuer: was.issuer, asked: asked, fault: err}
}

func (o *Others) askForKeys(ctx context.Context, shard string) (*Issuer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	body, err := o.peers.Ask(ctx, shard, status.TokenKeysPath, each, maxAnswer)
	if err != nil {
		return nil, err
	}
	var says Published
	if err := json.Unmarshal(body, &says); err != nil {
		return nil, fmt.Errorf("its answer cannot be decoded: %w", err)
	}
	return says.issuer()
}
