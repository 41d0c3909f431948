package keys

import (
	"context"
	"fmt"
	"os"
	"slices"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/server/pki"
)

// atStart returns the state of the files that is in use at the start. They may have changed since.
func (w *follower) atStart() string {
	if w.Membership == nil {
		return w.opened
	}
	content, err := w.Membership.Encode()
	if err != nil {
		return "" // it is read once more
	}
	return string(content)
}

// membershipState returns what tells one membership from any other. What is no membership is told from others by its
// content.
func (w *follower) membershipState() string {
	if w.File == "" {
		return w.atStart()
	}
	m, err := pki.ReadMembership(w.File)
	if err == nil {
		var content []byte
		if content, err = m.Encode(); err == nil {
			return string(content)
		}
	}
	content, _ := os.ReadFile(w.File)
	return fmt.Sprintf("%v: %x", err, content)
}

// join uses what is in the membership now. The directory gets it when the other replicas have agreed.
func (w *follower) join(ctx context.Context) error {
	m, err := pki.ReadMembership(w.File)
	if err != nil {
		return err
	}
	if m.Member != w.Membership.Member || m.Root.Name != w.Membership.Root.Name {
		return fmt.Errorf("%s is for shard %s of the installation of shard %s, and this is shard %s of that of shard %s: give it the latest membership of its own",
			w.File, m.Member.Name, m.Root.Name, w.Membership.Member.Name, w.Membership.Root.Name)
	}
	bundle, err := pki.Joined(w.directory, m)
	if err != nil {
		return err
	}
	if err := w.agree(ctx, bundle); err != nil {
		return err
	}
	if err := pki.Join(w.directory, m); err != nil {
		return fmt.Errorf("the membership is in use, and cannot be kept: %w", err)
	}
	if w.FindRoot != nil && !slices.Equal(m.Root.URLs, w.Membership.Root.URLs) {
		w.FindRoot(m.Root.URLs)
	}
	if m.Certificate != w.Membership.Certificate {
		klog.FromContext(ctx).Info("A new membership is in use", "file", w.File)
	}
	w.Membership = m
	return nil
}
