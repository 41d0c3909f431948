package front

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/pkg/server/reload"
	"github.com/regent-project/regent/pkg/server/shards"
)

// standing is what the front has by one membership. It is not changed.
type standing struct {
	*pki.Membership
	n           int    // later ones have higher ones
	ca          []byte // the installation's authorities, in PEM
	authority   *pki.Authority
	certificate *tls.Certificate // to clients
}

// keys have the front's membership as it is now. All methods may be called at any time on any goroutine.
type keys struct {
	first *standing
	file  *reload.Value[*standing] // nil: the membership stays
	// changed gets the membership that has come into use, maybe after a later one.
	changed chan *standing
	// caller has what the front calls shards with.
	caller *shards.Caller
}

func newKeys(cfg Config) (*keys, error) {
	if cfg.Membership == nil || cfg.Membership.Member.Kind != pki.KindFront {
		return nil, errors.New("a front needs the membership of a front: have it made by regent front add")
	}
	k := &keys{changed: make(chan *standing)}
	var err error
	if k.first, err = newStanding(cfg, cfg.Membership, 0); err != nil {
		return nil, err
	}
	k.caller = shards.NewCaller(k.call)
	tellStanding(k.first)
	if cfg.MembershipFile == "" {
		return k, nil
	}
	k.file, err = reload.New(reload.Source[*standing]{
		Flag: "--membership", File: cfg.MembershipFile,
		Make: func(_ []byte, before *standing) (*standing, error) { return k.read(cfg, before) },
		Work: k.tell, Reloaded: func([]byte) { membershipRefused.Set(0) }, Refused: func() { membershipRefused.Set(1) },
	})
	return k, err
}

// read returns what the front has by its file now. It is faulty if others may read it, or if it is another member's.
func (k *keys) read(cfg Config, before *standing) (*standing, error) {
	if before == nil {
		before = k.first
	}
	m, err := pki.ReadMembership(cfg.MembershipFile)
	if err != nil {
		return nil, err
	}
	if first := k.first; m.Member != first.Member || m.Root.Name != first.Root.Name {
		return nil, fmt.Errorf("it is for %s %s of the installation of shard %s, and this is %s %s of that of shard %s: give the latest membership of this front",
			m.Member.Kind, m.Member.Name, m.Root.Name, first.Member.Kind, first.Member.Name, first.Root.Name)
	}
	return newStanding(cfg, m, before.n+1)
}

func newStanding(cfg Config, m *pki.Membership, n int) (*standing, error) {
	authority, err := m.Authority()
	if err != nil {
		return nil, err
	}
	certPEM, keyPEM, err := authority.Serve(cfg.Names, cfg.Addresses)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("the front's certificate is not usable: %w", err)
	}
	return &standing{m, n, []byte(m.CertificateAuthority), authority, &pair}, nil
}

// now returns what the front has now. Each change is another value.
func (k *keys) now() *standing {
	if k.file == nil {
		return k.first
	}
	s, done := k.file.Use()
	done() // a standing needs no end
	return s
}

// call is what the front calls shards with: see shards.Keys.
func (k *keys) call() (ca []byte, authority *pki.Authority) {
	s := k.now()
	return s.ca, s.authority
}

// tell says that a membership is in use, until ctx ends.
func (k *keys) tell(ctx context.Context, s *standing) {
	tellStanding(s)
	select {
	case k.changed <- s:
	case <-ctx.Done():
		return
	}
	<-ctx.Done()
}

// run follows the file until ctx ends.
func (k *keys) run(ctx context.Context) {
	if k.file != nil {
		k.file.Run(ctx)
	}
}
