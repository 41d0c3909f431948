// Package host judges the addresses that a process tells to others.
package host

import (
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Check returns an error that continues "<field> <value>" if others cannot dial that host. A host is an IP address or a
// name, without a port.
func Check(host string) error {
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "<nil>":
		return fmt.Errorf("is what a net.IP without a value says: give an address that other replicas can dial")
	case err != nil && len(validation.IsDNS1123Subdomain(host)) > 0:
		return fmt.Errorf("must be an IP address or a host name that other replicas can dial, without scheme and port: %s",
			strings.Join(validation.IsDNS1123Subdomain(host), "; "))
	case err != nil:
		return nil //nolint:nilerr // it is a name
	case ip.IsUnspecified(), ip.IsMulticast(), ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("stands for no process: give an address that other replicas can dial")
	}
	return nil
}
