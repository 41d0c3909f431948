package server

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

	"github.com/regent-project/regent/pkg/server/pki"
)

const (
	// credentialsInterval is the pause between two looks at the files in pki/.
	credentialsInterval = 2 * time.Second
	// signAgain is how old what this process has signed for itself may get. It is valid for years: a process that lives longer signs in time.
	signAgain = 30 * 24 * time.Hour
	// followTimeout is how long it may take to compare an authority with the shard's record in etcd.
	followTimeout = 5 * time.Second
)

// credentialsWatch is what watchCredentials knows.
type credentialsWatch struct {
	*credentials
	// follow agrees with the other replicas on the authority.
	follow func(context.Context, *pki.Bundle) error
	// membership is that of a member. Only its file counts then, and what is in pki/ follows it. findRoot is told where the root shard is.
	membership     *pki.Membership
	membershipFile string
	findRoot       func(urls []string)
	// inUse is the state of the files that is in use, and refused one that will not be. latest is the state at the last look: files that are
	// being copied are judged when they have stayed the same for one interval. told is what was logged of it.
	inUse, refused, latest, told string
	signed                       time.Time
}

// watchCredentials uses what is in pki/, or in the membership, when it changes, until ctx ends.
func (r *run) watchCredentials(ctx context.Context, store *store, caches *caches) {
	w := &credentialsWatch{credentials: r.keys, follow: store.shard.follow, membership: r.cfg.Membership, membershipFile: r.cfg.MembershipFile}
	if caches.others != nil {
		w.findRoot = caches.others.FindRoot
	}
	w.run(ctx)
}

// run uses what is in the files when it changes, until ctx ends. It follows the other replicas before anything of a new authority is used: what
// another shard's authority has signed must never be shown. Faulty files change nothing.
func (w *credentialsWatch) run(ctx context.Context) {
	w.inUse, w.signed = w.began(), time.Now()
	tick := time.NewTicker(credentialsInterval)
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

func (w *credentialsWatch) look(ctx context.Context, now time.Time) {
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
			if errors.Is(err, errOtherShard) {
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
func (w *credentialsWatch) change(ctx context.Context) error {
	if w.membership != nil {
		return w.join(ctx)
	}
	bundle, err := pki.Read(w.directory)
	if err != nil {
		return err
	}
	return w.agree(ctx, bundle)
}

// agree uses what is in a bundle, if the other replicas agree.
func (w *credentialsWatch) agree(ctx context.Context, bundle *pki.Bundle) error {
	before := w.held.Load().bundle
	within, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	if err := w.follow(within, bundle); err != nil {
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

func (w *credentialsWatch) refuse(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	w.reject(err)
	if err.Error() != w.told {
		w.told = err.Error()
		if w.membership != nil {
			klog.FromContext(ctx).Error(err, "The certificates stay as they are: correct --membership before this replica starts anew", "file", w.membershipFile)
			return
		}
		klog.FromContext(ctx).Error(err, "The certificates stay as they are: correct pki/ before this replica starts anew", "directory", w.directory)
	}
}

// state returns what tells the content of the files from any other.
func (w *credentialsWatch) state() string {
	if w.membership != nil {
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
