package serviceaccounts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/regent-project/regent/pkg/clusters"
)

// Objects finds service accounts and Secrets, in any logical cluster.
type Objects interface {
	// Cached returns an object's metadata from memory. It may be stale.
	Cached(resource schema.GroupVersionResource, key clusters.Key) (metav1.Object, bool)
	// Live reads an object from storage. The error is NotFound if there is none.
	Live(ctx context.Context, resource schema.GroupVersionResource, key clusters.Key) (metav1.Object, error)
}

var (
	serviceAccounts = corev1.SchemeGroupVersion.WithResource("serviceaccounts")
	secrets         = corev1.SchemeGroupVersion.WithResource("secrets")
)

const (
	// rememberedDead is how many uids of dead objects are remembered, deadFor how long. Nobody bounds how often
	// clients come with tokens of accounts that have gone, and each would cost a read of etcd. A uid never comes
	// back, unless a backup is restored.
	rememberedDead = 4096
	deadFor        = 10 * time.Second
)

// accounts says whether the objects to which tokens are bound are still there.
type accounts struct {
	objects Objects
	dead    *cache.LRUExpireCache // uids
}

func newAccounts(objects Objects) *accounts {
	return &accounts{objects: objects, dead: cache.NewLRUExpireCache(rememberedDead)}
}

// check returns an error unless all objects that a token names still are there.
func (a *accounts) check(ctx context.Context, p private) error {
	key := clusters.Key{Cluster: logicalcluster.Name(p.ClusterName), Namespace: p.Namespace, Name: p.Account.Name}
	if err := a.lives(ctx, serviceAccounts, key, p.Account.UID); err != nil {
		return fmt.Errorf("service account %s: %w", key, err)
	}
	if p.Secret == nil {
		return nil
	}
	key.Name = p.Secret.Name
	if err := a.lives(ctx, secrets, key, p.Secret.UID); err != nil {
		return fmt.Errorf("secret %s, to which the token is bound: %w", key, err)
	}
	return nil
}

// lives returns an error unless an object has the uid and is not being deleted. The cache's word counts if it knows the
// uid: so a deletion counts as soon as the watch tells of it. Of what the cache does not know, or knows by another uid,
// storage decides: it may be new.
func (a *accounts) lives(ctx context.Context, resource schema.GroupVersionResource, key clusters.Key, uid types.UID) error {
	if obj, ok := a.objects.Cached(resource, key); ok && obj.GetUID() == uid {
		return living(obj, uid)
	}
	if _, dead := a.dead.Get(uid); dead {
		return errGone
	}
	obj, err := a.objects.Live(ctx, resource, key)
	switch {
	case apierrors.IsNotFound(err):
		err = errGone
	case err != nil:
		return fmt.Errorf("cannot be read: %w", err)
	default:
		err = living(obj, uid)
	}
	if err != nil {
		a.dead.Add(uid, true, deadFor)
	}
	return err
}

// errGone says that a token is worth nothing any more.
var errGone = errors.New("it has been deleted, or replaced by another one of the same name: ask for a token of one that exists")

func living(obj metav1.Object, uid types.UID) error {
	if obj.GetUID() != uid || obj.GetDeletionTimestamp() != nil || clusters.IsTombstone(obj) {
		return errGone
	}
	return nil
}
