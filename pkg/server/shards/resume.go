package shards

import (
	"context"
	"crypto/sha256"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// InOneHistory lists and watches another shard for one informer, and makes the informer list again if the shard may
// have been restored from a backup since. Use one for each informer. The transport must be one of OpenWatches.Over.
//
// The revisions of an etcd that was restored from a backup begin again at an earlier one. A watch from a revision that
// the etcd has not reached yet is accepted, and stays silent until it is reached. So the informer would miss all
// changes up to then, and nothing would tell.
//
// The answers themselves do not tell of a restore, but the processes that give them do: after a restore all replicas
// must be restarted (OPERATIONS.md, "After a restore of etcd"). A process makes a new key and a new certificate for
// other members each time it starts. So a watch is accepted only from a process that has answered a list of the same
// informer since the last refusal. From any other process the transport refuses it with 410 Expired, which makes the
// informer list again. The price is one list when a watch goes on at another replica, or after a restart.
//
// A list names no revision either, but the "0" of the first one: who answers it is known only afterwards. A shard waits
// for a revision that it has not reached, and then asks its client to come again, which takes a minute and more if
// nothing is written there.
func InOneHistory(lw cache.ListerWatcherWithContext) cache.ListerWatcherWithContext {
	h := &history{of: lw, listers: map[process]bool{}}
	return &cache.ListWatch{ListWithContextFunc: h.list, WatchFuncWithContext: h.watch}
}

// process identifies a process of a shard, by the hash of the certificate that it shows.
type process [sha256.Size]byte

// history says which processes serve what an informer has listed.
type history struct {
	of cache.ListerWatcherWithContext

	mu sync.Mutex
	// listers are the processes that have answered lists since the last watch was refused.
	listers map[process]bool
}

// purpose is in the context of a request: which informer asks, and whether for a watch.
type purpose struct {
	*history
	watch bool
}

type readingKey struct{}

func (h *history) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if opts.ResourceVersion != "0" {
		opts.ResourceVersion, opts.ResourceVersionMatch = "", "" // it may be one of another history
	}
	return h.of.ListWithContext(context.WithValue(ctx, readingKey{}, purpose{h, false}), opts)
}

func (h *history) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return h.of.WatchWithContext(context.WithValue(ctx, readingKey{}, purpose{h, true}), opts)
}

// check returns an error if the informer that has sent a request cannot use the answer.
func check(req *http.Request, resp *http.Response) error {
	r, ok := req.Context().Value(readingKey{}).(purpose)
	if !ok || resp.StatusCode != http.StatusOK || resp.TLS == nil || len(resp.TLS.PeerCertificates) == 0 {
		return nil
	}
	return r.record(sha256.Sum256(resp.TLS.PeerCertificates[0].Raw), r.watch)
}

// record takes the answer to a list, and returns an error if the answer to a watch cannot be used.
func (h *history) record(by process, watch bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !watch:
		h.listers[by] = true
	case !h.listers[by]:
		clear(h.listers)
		return apierrors.NewResourceExpired("another process answers than the one that was listed: its history may be another one")
	}
	return nil
}
