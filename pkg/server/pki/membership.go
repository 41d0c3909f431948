package pki

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"
)

// Files of a member of an installation, beside CACertFile. Only the root shard has CAKeyFile.
const (
	MemberCertFile = "member.crt"
	MemberKeyFile  = "member.key"
)

// Membership is what a shard or a front needs to join an installation. The file is a secret.
type Membership struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Member is whom it is for.
	Member MemberName `json:"member"`
	// Root is the root shard.
	Root RootShard `json:"root"`
	// CertificateAuthority is the installation's. Certificate and Key are the member's authority. All are in PEM.
	CertificateAuthority string `json:"certificateAuthority"`
	Certificate          string `json:"certificate"`
	Key                  string `json:"key"`
}

// RootShard says where a member finds the root shard.
type RootShard struct {
	Name string `json:"name"`
	// URLs are those of its replicas. One that answers is enough.
	URLs []string `json:"urls"`
}

// ReplicasOf returns the URLs of the replicas of any shard. urls are those in its Shard object. For the root shard those of the membership come
// last: if it has moved, a new membership says where to.
func (r RootShard) ReplicasOf(shard string, urls []string) []string {
	urls = slices.Clone(urls)
	if shard != r.Name {
		return urls
	}
	for _, u := range r.URLs {
		if !slices.Contains(urls, u) {
			urls = append(urls, u)
		}
	}
	return urls
}

// MemberName is a Member in a file.
type MemberName struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
}

const (
	membershipVersion = "regent.dev/v1alpha1"
	membershipKind    = "Membership"
)

// NewMembership makes a membership, with a new authority for the member. It needs the key of the installation's authority.
func (b *Bundle) NewMembership(m Member, root RootShard) (*Membership, error) {
	if b.isRolling() {
		return nil, errors.New("the authority is being rolled, and the new member would not get to know the next step: finish that first, regent pki roll")
	}
	certPEM, keyPEM, err := b.NewAuthority(m)
	if err != nil {
		return nil, err
	}
	return &Membership{
		APIVersion: membershipVersion, Kind: membershipKind, Member: MemberName(m), Root: root,
		CertificateAuthority: string(b.CAPEM), Certificate: string(certPEM), Key: string(keyPEM),
	}, nil
}

// Encode returns the membership as a file.
func (m *Membership) Encode() ([]byte, error) { return yaml.Marshal(m) }

// ReadMembership reads a file that Encode has made.
func ReadMembership(name string) (*Membership, error) {
	content, err := readKey(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read the membership: %w", err)
	}
	m := &Membership{}
	if err := yaml.UnmarshalStrict(content, m); err != nil {
		return nil, fmt.Errorf("%s is no membership, have it made by regent shard add: %w", name, err)
	}
	if _, err := m.Authority(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// Authority returns the member's authority. It fails if the parts of the membership do not fit each other.
func (m *Membership) Authority() (*Authority, error) {
	if m.APIVersion != membershipVersion || m.Kind != membershipKind {
		return nil, fmt.Errorf("it is a %s of %s, and not a %s of %s: have it made by regent shard add of this version", m.Kind, m.APIVersion, membershipKind, membershipVersion)
	}
	if m.Root.Name == "" || len(m.Root.URLs) == 0 {
		return nil, errors.New("it has no name or no URL of the root shard")
	}
	for _, root := range m.Root.URLs {
		if u, err := url.Parse(root); err != nil || u.Scheme != "https" || u.Host == "" {
			return nil, fmt.Errorf("%q is no URL of the root shard: it must be as https://<host>:<port>", root)
		}
	}
	cas, err := cert.ParseCertsPEM([]byte(m.CertificateAuthority))
	if err != nil {
		return nil, fmt.Errorf("it has no certificate of the installation's authority: %w", err)
	}
	a, err := LoadAuthority([]byte(m.Certificate), []byte(m.Key))
	if err != nil {
		return nil, err
	}
	if a.Member != Member(m.Member) {
		return nil, fmt.Errorf("it is for %s, and its certificate for %s", Member(m.Member), a.Member)
	}
	if err := a.certificate.CheckSignatureFrom(cas[0]); err != nil {
		return nil, fmt.Errorf("the certificate of %s is not signed by the authority beside it: %w", a.Member, err)
	}
	return a, nil
}

// Join makes the directory that of a member of the installation: later Ensure needs nothing else. A newer membership of the same member
// replaces the one that is there. Another installation's is refused.
func Join(directory string, m *Membership) error {
	if _, err := m.Authority(); err != nil {
		return err
	}
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return fmt.Errorf("cannot create the directory for keys (below --root-directory): %w", err)
	}
	if err := refuseWritable(directory); err != nil {
		return err
	}
	unlock, err := lock(filepath.Join(directory, "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	in := func(name string) string { return filepath.Join(directory, name) }
	existing, err := os.ReadFile(in(CACertFile))
	switch {
	case err == nil && !bytes.Equal(bytes.TrimSpace(existing), bytes.TrimSpace([]byte(m.CertificateAuthority))):
		return fmt.Errorf("%s is the authority of another installation, or of a shard that was started alone, and its logical clusters trust it: "+
			"a shard joins with an empty --root-directory and an empty etcd; if this is the wrong membership, give this installation's", in(CACertFile))
	case err == nil && exists(in(CAKeyFile)):
		return fmt.Errorf("%s is here, so this is the installation's root shard: start it without a membership", in(CAKeyFile))
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("cannot read the certificate authority: %w", err)
	}
	if there, err := os.ReadFile(in(MemberCertFile)); err == nil {
		certs, err := cert.ParseCertsPEM(there)
		if err != nil {
			return fmt.Errorf("%s holds no certificate: remove it, and it is made anew from the membership: %w", in(MemberCertFile), err)
		}
		if old, err := memberOf(certs[0]); err != nil || old != Member(m.Member) {
			return fmt.Errorf("%s is that of %s, and the membership is for %s: give each member a --root-directory of its own", in(MemberCertFile), old, Member(m.Member))
		}
		if bytes.Equal(there, []byte(m.Certificate)) {
			return nil
		}
	}
	// The certificate is written after its key: a key without a certificate that fits is left over from a join that was cut short.
	return writeAll(file{in(CACertFile), []byte(m.CertificateAuthority)}, file{in(MemberKeyFile), []byte(m.Key)}, file{in(MemberCertFile), []byte(m.Certificate)})
}
