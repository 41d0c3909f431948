package encryption

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/server/reload"
)

// times say how often and how long. Tests have their own.
type times struct {
	// look is the pause between two looks at the file.
	look time.Duration
	// patience is how long new KMS plugins may take to be healthy. retry is the pause before they are tried again.
	patience, retry time.Duration
}

var defaultTimes = times{look: time.Second, patience: 10 * time.Second, retry: 30 * time.Second}

const (
	pluginPoll = 100 * time.Millisecond
	// changedTimeout is how long one call of changed may take.
	changedTimeout = 5 * time.Second
)

// Run loads the file anew when it changes, until ctx ends. What is encrypted or decrypted at that moment goes on with
// the old keys. If the file cannot be used, the old keys stay in use. Run calls changed after each change, and again
// after a while if that fails. Close ends what is retired then.
func (k *Keys) Run(ctx context.Context, changed func(context.Context) error) {
	r := &reloads{keys: k, changed: changed}
	r.file = reload.Follower{InUse: k.current.Load().hash, Read: r.read, Use: r.use, Accepted: r.accept, Refused: r.refuse}
	reload.Each(ctx, k.times.look, r.look)
}

// reloads is what Run knows.
type reloads struct {
	keys    *Keys
	file    reload.Follower
	changed func(context.Context) error
	retired []retired
	// pending says that changed has not succeeded since the last change, complained that the log says so.
	pending, complained bool
}

// retired is a generation that nobody begins to use. What began before has ended by the time at which its plugins end.
type retired struct {
	*generation
	at time.Time
}

func (r *reloads) look(ctx context.Context, now time.Time) {
	r.retired = slices.DeleteFunc(r.retired, func(old retired) bool {
		if now.Before(old.at) {
			return false
		}
		old.end()
		return true
	})
	r.file.Look(ctx, now)
	if r.pending {
		r.tell(ctx)
	}
}

// tell calls changed. Its failure is logged once for each change.
func (r *reloads) tell(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, changedTimeout)
	defer cancel()
	err := r.changed(within)
	r.pending = err != nil
	if err != nil && !r.complained && ctx.Err() == nil {
		r.complained = true
		klog.FromContext(ctx).Error(err, "What was to follow a change of the encryption keys has failed, trying again: keep the old keys in the file until the log says more")
	}
	if err == nil && r.complained {
		klog.FromContext(ctx).Info("What was to follow a change of the encryption keys is done")
	}
}

// read returns the hash of the file.
func (r *reloads) read() (string, error) {
	hash, err := encryptionconfig.GetEncryptionConfigHash(r.keys.file)
	if err != nil {
		return "", fmt.Errorf("--encryption-provider-config: cannot read %s: %w", r.keys.file, err)
	}
	return hash, nil
}

// use puts the file into use, if its plugins work. Upstream reads it once more for that.
func (r *reloads) use(ctx context.Context, hash string) error {
	k := r.keys
	next, err := k.load() //nolint:contextcheck // plugins live as long as the keys
	if err != nil {
		return err
	}
	if next.hash != hash {
		next.end()
		return reload.TryAgain(fmt.Errorf("--encryption-provider-config: %s changes while it is read", k.file), 0)
	}
	if err := k.healthy(ctx, next); err != nil {
		next.end()
		return reload.TryAgain(fmt.Errorf("--encryption-provider-config: the KMS plugins of %s do not work, trying again: %w", k.file, err), k.times.retry)
	}
	old := k.use(next)
	r.retired = append(r.retired, retired{old, time.Now().Add(old.grace)})
	r.pending, r.complained = true, false
	klog.FromContext(ctx).Info("The encryption keys have changed", "file", k.file, "hash", next.hash)
	return nil
}

func (r *reloads) accept(context.Context, string) { r.keys.accept() }

// refuse keeps the keys in use, and says why.
func (r *reloads) refuse(ctx context.Context, err error, news bool) {
	r.keys.reject(err)
	if news {
		klog.FromContext(ctx).Error(err, "The encryption keys stay as they are: correct the file before this replica starts anew")
	}
}

// healthy waits until the KMS plugins of a generation work. Without any it returns at once.
func (k *Keys) healthy(ctx context.Context, g *generation) error {
	ctx, cancel := context.WithTimeout(ctx, max(k.times.patience, g.grace))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "/readyz/"+g.plugins.Name(), nil)
	if err != nil {
		return err
	}
	tick := time.NewTicker(pluginPoll)
	defer tick.Stop()
	for {
		if err = g.plugins.Check(req); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}
