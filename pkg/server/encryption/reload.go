package encryption

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/klog/v2"
)

// times say how often and how long. Tests have their own.
type times struct {
	// look is the pause between two looks at the file. To read it costs less than to be told of its changes: it may
	// be behind symbolic links that are exchanged, as in a mounted Secret.
	look time.Duration
	// patience is how long new KMS plugins may take to be healthy. retry is the pause before they are tried again.
	patience, retry time.Duration
}

var defaultTimes = times{look: 2 * time.Second, patience: 10 * time.Second, retry: 30 * time.Second}

const (
	pluginPoll = 100 * time.Millisecond
	// changedTimeout is how long one call of changed may take.
	changedTimeout = 5 * time.Second
)

// Run loads the file anew when it changes, until ctx ends. What is encrypted or decrypted at that moment goes on with
// the old keys. If the file cannot be used, the old keys stay in use. Run calls changed after each change, and again
// after a while if that fails.
func (k *Keys) Run(ctx context.Context, changed func(context.Context) error) {
	w := &watch{keys: k, changed: changed}
	tick := time.NewTicker(k.times.look)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return // Close ends what is retired
		case now := <-tick.C:
			w.look(ctx, now)
		}
	}
}

// watch is what Run knows.
type watch struct {
	keys    *Keys
	changed func(context.Context) error
	// refused is the hash of a content that cannot be used, and told is what was logged of it. again is when to try
	// it again; zero: never.
	refused, told string
	again         time.Time
	retired       []retired
	// pending says that changed has not succeeded since the last change, complained that the log says so.
	pending, complained bool
}

// retired is a generation that nobody begins to use. What began before has ended by the time at which its plugins end.
type retired struct {
	*generation
	at time.Time
}

func (w *watch) look(ctx context.Context, now time.Time) {
	w.retired = slices.DeleteFunc(w.retired, func(r retired) bool {
		if now.Before(r.at) {
			return false
		}
		r.end()
		return true
	})
	w.reload(ctx, now)
	if w.pending {
		w.tell(ctx)
	}
}

// tell calls changed. Its failure is logged once for each change.
func (w *watch) tell(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, changedTimeout)
	defer cancel()
	err := w.changed(within)
	w.pending = err != nil
	if err != nil && !w.complained && ctx.Err() == nil {
		w.complained = true
		klog.FromContext(ctx).Error(err, "What was to follow a change of the encryption keys has failed, trying again: keep the old keys in the file until the log says more")
	}
	if err == nil && w.complained {
		klog.FromContext(ctx).Info("What was to follow a change of the encryption keys is done")
	}
}

func (w *watch) reload(ctx context.Context, now time.Time) {
	k := w.keys
	hash, err := encryptionconfig.GetEncryptionConfigHash(k.file)
	if err != nil {
		w.refuse(ctx, "", fmt.Errorf("--encryption-provider-config: cannot read %s: %w", k.file, err))
		return
	}
	if hash == k.current.Load().hash {
		w.refused, w.told = "", ""
		k.accept()
		return
	}
	if hash == w.refused && (w.again.IsZero() || now.Before(w.again)) {
		return
	}
	w.again = time.Time{}
	next, err := k.load() //nolint:contextcheck // plugins live as long as the keys
	if err != nil {
		w.refuse(ctx, hash, err)
		return
	}
	if err := k.healthy(ctx, next); err != nil {
		next.end()
		w.again = now.Add(k.times.retry)
		w.refuse(ctx, hash, fmt.Errorf("--encryption-provider-config: the KMS plugins of %s do not work, trying again: %w", k.file, err))
		return
	}
	old := k.use(next)
	w.retired = append(w.retired, retired{old, now.Add(old.grace)})
	w.refused, w.told, w.pending, w.complained = "", "", true, false
	klog.FromContext(ctx).Info("The encryption keys have changed", "file", k.file, "hash", next.hash)
}

// refuse keeps the keys in use, and says why, once for each content.
func (w *watch) refuse(ctx context.Context, hash string, err error) {
	if ctx.Err() != nil {
		return
	}
	w.refused = hash
	w.keys.reject(err)
	if said := hash + err.Error(); said != w.told {
		w.told = said
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
