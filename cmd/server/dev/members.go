package dev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/server/installation"
	"github.com/regent-project/regent/pkg/server/pki"
)

// member is a shard or a front that needs a membership.
type member struct {
	name, file string
	urls       []string // none: it is a front
	children   []*child
	// out: it was removed from the installation, and nothing waits for it.
	out atomic.Bool
}

// join starts the members: those that have a membership at once, so that they serve although the root shard is down;
// all others once the root shard has made one for them. It returns when all are started, or ctx ends.
func (s *system) join(ctx context.Context, keep func(context.Context, []*child)) {
	started := map[*member]context.CancelFunc{}
	for _, m := range s.members {
		if m.hasMembership(s.bundle, s.shards[0].urls()) {
			memberCtx, stop := context.WithCancel(ctx)
			started[m] = stop
			keep(memberCtx, m.children)
		}
	}
	admin := s.rootAdmin(ctx)
	if admin == nil {
		return
	}
	for _, m := range s.members {
		var err error
		switch {
		case started[m] == nil:
			if err = m.join(ctx, admin, s.bundle); err == nil {
				keep(ctx, m.children)
			}
		case !m.isFront(): // its ports may be others than last time
			err = admin.Set(ctx, m.name, m.urls, nil)
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		s.out.say("%s takes no part: %v", m.name, err)
		if errors.Is(err, installation.ErrRemoved) {
			m.out.Store(true)
			if stop := started[m]; stop != nil {
				stop()
			}
		}
	}
}

// hasMembership reports whether there is a membership with which the member finds the root shard.
func (m *member) hasMembership(bundle *pki.Bundle, root []string) bool {
	there, err := pki.ReadMembership(m.file)
	return err == nil && slices.Equal(there.Root.URLs, root) && bytes.Equal([]byte(there.CertificateAuthority), bundle.CAPEM)
}

// rootAdmin waits for the root shard, tells it where its replicas are, and returns a way to change the installation. It
// returns nil if ctx ends first.
func (s *system) rootAdmin(ctx context.Context) *installation.Admin {
	root := s.shards[0]
	tick := time.NewTicker(announcePeriod)
	defer tick.Stop()
	for {
		for _, url := range root.urls() {
			admin, err := installation.New(&rest.Config{Host: url, TLSClientConfig: rest.TLSClientConfig{
				CAData: s.bundle.CAPEM, CertData: s.bundle.AdminCertPEM, KeyData: s.bundle.AdminKeyPEM,
			}})
			if err != nil {
				s.fail(&fault{err})
				return nil
			}
			// It fails until the root shard's leader has made its Shard object.
			if admin.Set(ctx, root.name, root.urls(), nil) == nil {
				return admin
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (m *member) isFront() bool { return len(m.urls) == 0 }

// join makes it a member, and writes the file with its membership.
func (m *member) join(ctx context.Context, admin *installation.Admin, bundle *pki.Bundle) error {
	// The one that is there is refused from now on. Without a file the next process asks for another membership,
	// whenever this one is killed.
	if err := os.Remove(m.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot replace the membership: %w", err)
	}
	membership, err := m.accepted(ctx, admin, bundle)
	if err != nil {
		return err
	}
	content, err := membership.Encode()
	if err != nil {
		return fmt.Errorf("cannot encode the membership: %w", err)
	}
	if err := os.WriteFile(m.file+".new", content, 0o600); err != nil {
		return fmt.Errorf("cannot write the membership: %w", err)
	}
	if err := os.Rename(m.file+".new", m.file); err != nil {
		return fmt.Errorf("cannot write the membership: %w", err)
	}
	return nil
}

// accepted makes it a member, and returns its new membership.
func (m *member) accepted(ctx context.Context, admin *installation.Admin, bundle *pki.Bundle) (*pki.Membership, error) {
	if m.isFront() {
		return admin.AddFront(ctx, bundle, m.name)
	}
	membership, err := admin.Add(ctx, bundle, installation.Addition{Name: m.name, Replicas: m.urls, Renew: true})
	if apierrors.IsNotFound(err) {
		return admin.Add(ctx, bundle, installation.Addition{Name: m.name, Replicas: m.urls})
	}
	return membership, err
}
