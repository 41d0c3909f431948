package pki

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"k8s.io/client-go/util/cert"
)

// Join makes the directory that of a member of the installation: later Ensure needs nothing else. A newer membership of
// the same member replaces the one that is there. Another installation's is refused.
func Join(directory string, m *Membership) error {
	b, unlock, err := joining(directory, m)
	if err != nil {
		return err
	}
	defer unlock()
	there, err := os.ReadFile(b.file(MemberCertFile))
	if err == nil && string(there) == m.Certificate && b.isHeld() {
		return nil
	}
	rollFile := []byte(nil) // none: it is removed
	if m.Roll != nil {
		if rollFile, err = json.Marshal(m.Roll); err != nil {
			return fmt.Errorf("cannot encode how far the authority is rolled: %w", err)
		}
	}
	return replaceTogether(directory, file{b.file(CACertFile), b.CAPEM}, file{b.file(RollFile), rollFile},
		file{b.file(MemberKeyFile), []byte(m.Key)}, file{b.file(MemberCertFile), []byte(m.Certificate)})
}

// Joined returns what the directory would hold after Join, and changes nothing.
func Joined(directory string, m *Membership) (*Bundle, error) {
	b, unlock, err := joining(directory, m)
	if err != nil {
		return nil, err
	}
	unlock()
	return b, nil
}

// joining returns what the directory will hold with a membership. Nobody else changes it until unlock.
func joining(directory string, m *Membership) (next *Bundle, unlock func(), err error) {
	if next, err = m.bundle(); err != nil {
		return nil, nil, err
	}
	next.directory = directory
	if unlock, err = makeAndLock(directory); err != nil {
		return nil, nil, err
	}
	if err = finishReplacing(directory); err == nil {
		err = errors.Join(next.mayReplaceCA(), next.mayReplaceMember())
	}
	if err != nil {
		unlock()
		return nil, nil, err
	}
	return next, unlock, nil
}

// isHeld reports whether the directory holds the authorities of this bundle.
func (b *Bundle) isHeld() bool {
	there := &Bundle{directory: b.directory}
	return there.readCA() == nil && string(there.CAPEM) == string(b.CAPEM) && there.Phase() == b.Phase() && there.Identity() == b.Identity()
}

// mayReplaceCA returns an error if the authority that is there is not the same, or some steps of a roll away.
func (b *Bundle) mayReplaceCA() error {
	there := &Bundle{directory: b.directory}
	err := there.readCA()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !b.follows(there):
		return fmt.Errorf("%s is the authority of another installation, or of a shard that was started alone, and its logical clusters trust it: "+
			"a shard joins with an empty --root-directory and an empty etcd; if this is the wrong membership, or one from before the authority was rolled, give the latest one", b.file(CACertFile))
	case there.caKey != nil:
		return fmt.Errorf("%s is here, so this is the installation's root shard: start it without a membership", b.file(CAKeyFile))
	}
	return nil
}

// follows reports whether a bundle is of the same authority as another one, or some steps of a roll before it or after
// it.
func (b *Bundle) follows(other *Bundle) bool {
	id := other.Identity()
	return b.Identity() == id || b.Succeeds(id) || b.Precedes(id)
}

// mayReplaceMember returns an error if the directory is another member's.
func (b *Bundle) mayReplaceMember() error {
	there, err := os.ReadFile(b.file(MemberCertFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read the certificate of a member: %w", err)
	}
	certs, err := cert.ParseCertsPEM(there)
	if err != nil {
		return fmt.Errorf("%s holds no certificate: remove it, and it is made anew from the membership: %w", b.file(MemberCertFile), err)
	}
	if old, err := memberOf(certs[0]); err != nil || old != b.authority.Member {
		return fmt.Errorf("%s is that of %s, and the membership is for %s: give each member a --root-directory of its own", b.file(MemberCertFile), old, b.authority.Member)
	}
	return nil
}
