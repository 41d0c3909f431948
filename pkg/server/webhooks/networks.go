package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// Public is the word for all addresses of the internet, in a list of networks.
const Public = "public"

// Networks are the addresses at which webhooks may be that tenants name. The zero value has none.
type Networks struct {
	public   bool
	prefixes []netip.Prefix
}

// ErrNotAllowed says that a webhook is at an address that Networks does not have. It does not say which address: that
// may be a secret of the operator's DNS.
var ErrNotAllowed = errors.New("the server calls no webhooks at that address: its operator says with --conversion-webhook-networks which ones it calls")

// ParseNetworks returns the networks of a list. Each entry is Public, an address, or a network such as 10.0.0.0/8.
func ParseNetworks(list []string) (Networks, error) {
	var out Networks
	for _, entry := range list {
		if entry == Public {
			out.public = true
			continue
		}
		prefix, err := netip.ParsePrefix(entry)
		if addr, isAddr := netip.ParseAddr(entry); isAddr == nil {
			addr = addr.Unmap()
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return Networks{}, fmt.Errorf("%q is neither %q, nor an address, nor a network such as 10.0.0.0/8", entry, Public)
		}
		out.prefixes = append(out.prefixes, prefix.Masked())
	}
	return out, nil
}

// MarshalJSON returns the networks as ParseNetworks takes them.
func (n Networks) MarshalJSON() ([]byte, error) {
	list := []string{}
	if n.public {
		list = append(list, Public)
	}
	for _, p := range n.prefixes {
		list = append(list, p.String())
	}
	return json.Marshal(list)
}

// Empty reports whether no webhook may be called.
func (n Networks) Empty() bool { return !n.public && len(n.prefixes) == 0 }

// AllowsHost reports whether a webhook may be at a host. Of a name it is known only when it is dialled, because it may
// stand for any address.
func (n Networks) AllowsHost(host string) bool {
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		return !n.Empty()
	}
	return n.Allows(addr)
}

// Allows reports whether a webhook may be at an address.
func (n Networks) Allows(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	for _, p := range n.prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return n.public && isPublic(addr)
}

// dialTimeout bounds how long a connection may take to open.
const dialTimeout = 5 * time.Second

// Dial opens a connection to a host that may be called. The address is judged when the host's name has been resolved,
// each time anew: a name that stood for a public address may stand for another one now.
func (n Networks) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout, Control: func(_, resolved string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(resolved)
		if err != nil || !n.Allows(at.Addr()) {
			return ErrNotAllowed
		}
		return nil
	}}
	conn, err := dialer.DialContext(ctx, network, address)
	if errors.Is(err, ErrNotAllowed) {
		return nil, ErrNotAllowed
	}
	return conn, err
}

// special are the addresses that look like public ones and are not: they are reserved, lead to others, or are where
// clouds have services for their machines.
var special = prefixes(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"168.63.129.16/32",                                     // of Azure's machines
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", // 2002: leads to any address of IPv4
)

// worldwide is what IPv6 has given out.
var worldwide = netip.MustParsePrefix("2000::/3")

func isPublic(addr netip.Addr) bool {
	if !addr.IsGlobalUnicast() || addr.IsPrivate() || addr.Is6() && !worldwide.Contains(addr) {
		return false
	}
	for _, p := range special {
		if p.Contains(addr) {
			return false
		}
	}
	return true
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, p := range list {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}
