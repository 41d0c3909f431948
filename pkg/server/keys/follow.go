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
	"github.com/regent-project/regent/pkg/server/reload"
)

const (
	// interval is the pause between two looks at the files in pki/, and before an etcd that is away is asked again.
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
	files  reload.Follower
	signed time.Time
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

// Follow uses what is in the files, or in the membership, when it changes, until ctx ends. It is called once. It
// follows the other replicas before anything of a new authority is used: what another shard's authority has signed must
// never be shown. Faulty files change nothing.
func (c *Keys) Follow(ctx context.Context, cfg FollowConfig) {
	reload.Each(ctx, interval, newFollower(c, cfg, time.Now()).look)
}

func newFollower(c *Keys, cfg FollowConfig, now time.Time) *follower {
	w := &follower{Keys: c, FollowConfig: cfg, signed: now}
	w.files = reload.Follower{
		InUse: w.atStart(), Read: func() (string, error) { return w.state(), nil }, Use: w.change, Refused: w.refuse,
		Accepted: func(context.Context, string) { w.accept() },
	}
	return w
}

func (w *follower) look(ctx context.Context, now time.Time) {
	if now.Sub(w.signed) > signAgain {
		if err := w.sign(w.inUse.Load()); err != nil {
			w.files.Refuse(ctx, err)
			return
		}
		w.signed = now
	}
	w.files.Look(ctx, now)
}

// change uses what is in the files now.
func (w *follower) change(ctx context.Context, _ string) error {
	err := w.read(ctx)
	switch {
	case err == nil:
		w.signed = time.Now()
		return nil
	case errors.Is(err, etcdcheck.ErrOtherShard):
		return err // to ask again would get the same answer
	}
	return reload.TryAgain(err, interval)
}

func (w *follower) read(ctx context.Context) error {
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
	before := w.inUse.Load().bundle
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

func (w *follower) refuse(ctx context.Context, err error, news bool) {
	w.reject(err)
	switch {
	case !news:
	case w.Membership != nil:
		klog.FromContext(ctx).Error(err, "The certificates stay as they are: correct --membership before this replica starts anew", "file", w.File)
	default:
		klog.FromContext(ctx).Error(err, "The certificates stay as they are: correct pki/ before this replica starts anew", "directory", w.directory)
	}
}

// state returns what tells what is in use, or would be, from anything else.
func (w *follower) state() string {
	if w.Membership != nil {
		return w.membershipState()
	}
	return stateOf(w.directory)
}

// ensure makes what is missing in a directory, and returns what is there, with its state.
func ensure(directory string) (*pki.Bundle, string, error) {
	for before := stateOf(directory); ; {
		bundle, err := pki.Ensure(directory)
		if err != nil {
			return nil, "", err
		}
		after := stateOf(directory)
		if after == before {
			return bundle, after, nil
		}
		before = after // something was made, or another process changes it at this moment
	}
}

// stateOf returns what tells the content of a directory's files from any other.
func stateOf(directory string) string {
	sum := sha256.New()
	for _, name := range []string{pki.CACertFile, pki.CAKeyFile, pki.RollFile, pki.AdminCertFile, pki.AdminKeyFile} {
		content, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			content = []byte(err.Error())
		}
		_, _ = fmt.Fprintf(sum, "%s %d\n%s\n", name, len(content), content)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}
