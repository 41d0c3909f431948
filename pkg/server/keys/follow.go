package keys

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/server/etcdcheck"
	"github.com/regent-project/regent/pkg/server/pki"
)

const (
	// interval is the pause between two looks at the files in pki/.
	interval = 2 * time.Second
	// signAgain is how old what this process has signed for itself may get. It is valid for years: a process that
	// lives longer signs in time.
	signAgain = 30 * 24 * time.Hour
	// followTimeout is how long it may take to compare an authority with the shard's record in etcd.
	followTimeout = 5 * time.Second
)

// follower is what Follow knows. Of a member only the membership's file counts, and what is in pki/ follows it.
type follower struct {
	*Keys
	FollowConfig
	// inUse is the state of the files that is in use, and refused one that will not be. latest is the state at the
	// last look: files that are being copied are judged when they have stayed the same for one interval. told is
	// what was logged of it.
	inUse, refused, latest, told string
	signed                       time.Time
}

// FollowConfig is what Follow needs.
type FollowConfig struct {
	// Agree agrees with the other replicas on an authority (etcdcheck.Shard.Follow).
	Agree func(context.Context, *pki.Bundle) error
	// Membership is that of a member; nil: the shard is none. File is where it is read from; empty: it never
	// changes. FindRoot is told where the root shard is; nil: nobody is.
	Membership *pki.Membership
	File       string
	FindRoot   func(urls []string)
}

// Follow uses what is in the files, or in the membership, when it changes, until ctx ends. It is called once.
func (c *Keys) Follow(ctx context.Context, cfg FollowConfig) {
	(&follower{Keys: c, FollowConfig: cfg}).run(ctx)
}

// run uses what is in the files when it changes, until ctx ends. It follows the other replicas before anything of a new
// authority is used: what another shard's authority has signed must never be shown. Faulty files change nothing.
func (w *follower) run(ctx context.Context) {
	w.inUse, w.signed = w.began(), time.Now()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			w.look(ctx, now)
		}
	}
}

func (w *follower) look(ctx context.Context, now time.Time) {
	if now.Sub(w.signed) > signAgain {
		if err := w.sign(w.held.Load()); err != nil {
			w.refuse(ctx, err)
			return
		}
		w.signed = now
	}
	state := w.state()
	settled := state == w.latest
	if w.latest = state; !settled || state == w.refused {
		return
	}
	if state != w.inUse {
		if err := w.change(ctx); err != nil {
			if errors.Is(err, etcdcheck.ErrOtherShard) {
				w.refused = state // to ask again would get the same answer
			}
			w.refuse(ctx, err)
			return
		}
		w.inUse, w.signed = state, now
	}
	w.accept()
	w.refused, w.told = "", ""
}

// change uses what is in the files now.
func (w *follower) change(ctx context.Context) error {
	if w.Membership != nil {
		return w.join(ctx)
	}
	bundle, err := pki.Read(w.directory)
	if err != nil {
		return err
	}
	return w.agree(ctx, bundle)
}

// agree uses what is in a bundle, if the other replicas agree.
func (w *follower) agree(ctx context.Context, bundle *pki.Bundle) error {
	before := w.held.Load().bundle
	within, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	if err := w.Agree(within, bundle); err != nil {
		return err
	}
	next, err := w.renewed(bundle)
	if err != nil {
		return err
	}
	if err := w.use(next); err != nil {
		return err
	}
	if before.Phase() != bundle.Phase() {
		klog.FromContext(ctx).Info("The certificate authority is rolled", "phase", bundle.Phase(), "signs", pki.Fingerprint(bundle.CA()))
	}
	return nil
}

func (w *follower) refuse(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	w.reject(err)
	if err.Error() != w.told {
		w.told = err.Error()
		if w.Membership != nil {
			klog.FromContext(ctx).Error(err, "The certificates stay as they are: correct --membership before this replica starts anew", "file", w.File)
			return
		}
		klog.FromContext(ctx).Error(err, "The certificates stay as they are: correct pki/ before this replica starts anew", "directory", w.directory)
	}
}

// state returns what tells the content of the files from any other.
func (w *follower) state() string {
	if w.Membership != nil {
		return w.membershipState()
	}
	sum := sha256.New()
	for _, name := range []string{pki.CACertFile, pki.CAKeyFile, pki.RollFile, pki.AdminCertFile, pki.AdminKeyFile} {
		content, err := os.ReadFile(filepath.Join(w.directory, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			content = []byte(err.Error())
		}
		_, _ = fmt.Fprintf(sum, "%s %d\n%s\n", name, len(content), content)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}
