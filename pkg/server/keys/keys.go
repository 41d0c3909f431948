// Package keys is what a replica has from pki/ and from its membership: whom it trusts, and what it shows to clients
// and to other members of the installation. It follows the files while the replica runs.
package keys

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/regent-project/regent/pkg/server/pki"
)

// Keys are what this process has from pki/ now: whom it trusts, and what it shows to clients and other members.
// Follow exchanges them when the files change. Nothing is ever taken back: connections and requests go on.
type Keys struct {
	directory, shard string
	// opened is the state of the files that Open has read.
	opened string
	// names and addresses are those of the serving certificate.
	names     []string
	addresses []net.IP

	inUse atomic.Pointer[generation]
	// clients has the authorities for client certificates.
	clients trust
	// serving is nil if the operator has given a certificate. members is nil without an authority to sign it.
	serving, members *pairSource
	// fault says why what is in the files is not what is used. Nil: it is.
	fault atomic.Pointer[error]
}

// generation is one state of the files. authority signs the certificates with which this process calls other members of
// the installation. It is nil if the shard is alone, and the key of its authority is elsewhere.
type generation struct {
	bundle    *pki.Bundle
	authority *pki.Authority
}

// Open makes what is missing in a directory, pki/, of a shard. A member of an installation needs the key of its
// authority.
func Open(directory, shard string, isMember bool) (*Keys, error) {
	bundle, opened, err := ensure(directory)
	if err != nil {
		return nil, err
	}
	c := &Keys{directory: directory, shard: shard, opened: opened}
	authority, err := bundle.Authority(shard)
	if err != nil && (isMember || !errors.Is(err, pki.ErrNoKey)) {
		return nil, err
	}
	if authority != nil {
		c.members = &pairSource{name: "members", names: []string{pki.ServerName}}
	}
	return c, c.use(&generation{bundle, authority})
}

// ServeAs returns what the listener shows: a certificate for names and addresses. The key stays in this process.
func (c *Keys) ServeAs(names []string, addresses []net.IP) (dynamiccertificates.CertKeyContentProvider, error) {
	c.names, c.addresses, c.serving = names, addresses, &pairSource{name: "serving"}
	return c.serving, c.sign(c.inUse.Load())
}

// use makes a state of the files the one in use. What can fail comes first.
func (c *Keys) use(h *generation) error {
	if err := c.sign(h); err != nil {
		return err
	}
	if err := c.clients.set(h.bundle.CAPEM); err != nil {
		return err
	}
	c.inUse.Store(h)
	tellAuthorities(h.bundle, c.serving)
	return nil
}

// sign makes the certificates anew that this process shows. Connections that are open keep the old ones.
func (c *Keys) sign(h *generation) error {
	if c.serving != nil {
		certPEM, keyPEM, err := h.bundle.ServingCert(c.names, c.addresses)
		if err != nil {
			return err
		}
		if err := c.serving.set(certPEM, keyPEM); err != nil {
			return err
		}
	}
	if c.members == nil || h.authority == nil {
		return nil
	}
	certPEM, keyPEM, err := h.authority.Serve(nil, nil)
	if err != nil {
		return err
	}
	return c.members.set(certPEM, keyPEM)
}

// renewed returns what the files hold now, with an authority that the authority that signs now has signed.
func (c *Keys) renewed(bundle *pki.Bundle) (*generation, error) {
	before := c.inUse.Load()
	h := &generation{bundle, before.authority}
	if before.authority == nil || !bundle.IsMember() && bundle.CA().Equal(before.bundle.CA()) {
		return h, nil
	}
	var err error
	if h.authority, err = bundle.Authority(c.shard); err != nil {
		return nil, fmt.Errorf("cannot sign for calls to other members: %w", err)
	}
	return h, nil
}

// Bundle returns what is in the files that are in use.
func (c *Keys) Bundle() *pki.Bundle { return c.inUse.Load().bundle }

// Clients returns the authorities for client certificates. They change when the files do.
func (c *Keys) Clients() dynamiccertificates.CAContentProvider { return &c.clients }

// Members returns what this process shows to other members of the installation, or nil if it has no authority to sign
// it: then it calls none either.
func (c *Keys) Members() dynamiccertificates.SNICertKeyContentProvider {
	if c.members == nil {
		return nil
	}
	return c.members
}

// ForMembers returns what this process needs to call other members. The authority is nil if it has none.
func (c *Keys) ForMembers() (ca []byte, authority *pki.Authority) {
	h := c.inUse.Load()
	return h.bundle.CAPEM, h.authority
}

// ServeHTTP answers whether what is in the files is in use. It is no part of /readyz: the replica serves as before.
func (c *Keys) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if fault := c.fault.Load(); fault != nil {
		http.Error(w, (*fault).Error(), http.StatusInternalServerError)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}
