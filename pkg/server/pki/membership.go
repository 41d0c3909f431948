package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"

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
	// CertificateAuthority is the installation's: two of them while it is rolled, of which the one that signs comes
	// first. Certificate and Key are the member's authority. All are in PEM.
	CertificateAuthority string `json:"certificateAuthority"`
	Certificate          string `json:"certificate"`
	Key                  string `json:"key"`
	// Roll says how far the installation's authority is rolled, and proves it. Nil: it was never rolled.
	Roll *roll `json:"roll,omitempty"`
}

// RootShard says where a member finds the root shard.
type RootShard struct {
	Name string `json:"name"`
	// URLs are those of its replicas. One that answers is enough.
	URLs []string `json:"urls"`
}

// ReplicasOf returns the URLs of the replicas of any shard. urls are those in its Shard object. For the root shard
// those of the membership come last: if it has moved, a new membership says where to.
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

// NewMembership makes a membership, with a new authority for the member. It needs the key of the installation's
// authority.
func (b *Bundle) NewMembership(m Member, root RootShard) (*Membership, error) {
	certPEM, keyPEM, err := b.NewAuthority(m)
	if err != nil {
		return nil, err
	}
	return &Membership{
		APIVersion: membershipVersion, Kind: membershipKind, Member: MemberName(m), Root: root,
		CertificateAuthority: string(b.CAPEM), Certificate: string(certPEM), Key: string(keyPEM), Roll: b.roll.forMembers(),
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
	b, err := m.bundle()
	if err != nil {
		return nil, err
	}
	return b.authority, nil
}

// Trusted returns the installation's authorities whose certificates are accepted. The one that signs comes first. There
// are none if the parts of the membership do not fit each other.
func (m *Membership) Trusted() []*x509.Certificate {
	b, err := m.bundle()
	if err != nil {
		return nil
	}
	return b.trusted
}

// bundle returns what a member has by its membership.
func (m *Membership) bundle() (*Bundle, error) {
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
	b := &Bundle{CAPEM: []byte(m.CertificateAuthority)}
	if err := b.useCA(m.Roll); err != nil {
		return nil, err
	}
	a, err := LoadAuthority([]byte(m.Certificate), []byte(m.Key))
	if err != nil {
		return nil, err
	}
	if a.Member != Member(m.Member) {
		return nil, fmt.Errorf("it is for %s, and its certificate for %s", Member(m.Member), a.Member)
	}
	if err := a.certificate.CheckSignatureFrom(b.ca); err != nil {
		return nil, fmt.Errorf("the certificate of %s is not signed by the authority beside it: %w", a.Member, err)
	}
	b.authority = a
	return b, nil
}
