package leader

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/election/internal/host"
)

// podIP is the environment variable in which a Pod's manifest gives its address, by convention.
const podIP = "POD_IP"

// machine is where the address of this process comes from. Tests have another.
type machine struct {
	env func(string) string
	// route returns the address from which this machine reaches another.
	route func(hostPort string) (netip.Addr, error)
	// addresses returns the addresses of this machine's interfaces.
	addresses func() ([]netip.Addr, error)
}

var thisMachine = machine{env: os.Getenv, route: route, addresses: addresses}

// advertised returns the host by which other replicas dial this process.
func (m machine) advertised(given string, config *rest.Config) (string, error) {
	if given != "" {
		return given, nil // validated
	}
	if pod := m.env(podIP); pod != "" {
		if err := host.Check(pod); err != nil {
			return "", fmt.Errorf("leader: Config.AdvertiseAddress is empty, and the environment's %s %q %w", podIP, pod, err)
		}
		return pod, nil
	}
	towards, err := m.route(serverOf(config))
	if err == nil && !towards.IsLoopback() && host.Check(towards.String()) == nil {
		return towards.String(), nil
	}
	own, listErr := m.addresses()
	for _, ip := range own {
		if ip.IsGlobalUnicast() { // private networks' are, too
			return ip.String(), nil
		}
	}
	for _, ip := range append([]netip.Addr{towards}, own...) {
		if ip.IsValid() && ip.IsLoopback() {
			return ip.String(), nil
		}
	}
	return "", fmt.Errorf("leader: Config.AdvertiseAddress is empty, and no address of this machine was found (route to the server: %w; interfaces: %w): set it, or %s", err, listErr, podIP)
}

// has reports whether this machine has an address.
func (m machine) has(ip netip.Addr) bool {
	own, _ := m.addresses()
	for _, other := range own {
		if other.WithZone("") == ip.WithZone("") {
			return true
		}
	}
	return false
}

// serverOf returns host and port of the server; empty if the configuration names none.
func serverOf(config *rest.Config) string {
	text := config.Host
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	server, err := url.Parse(text)
	if err != nil || server.Hostname() == "" {
		return ""
	}
	port := server.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(server.Hostname(), port)
}

// routeTimeout bounds the look-up of the server's name.
const routeTimeout = 2 * time.Second

// route asks the kernel. A UDP socket that is connected has sent nothing.
func route(hostPort string) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(context.Background(), routeTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", hostPort)
	if err != nil {
		return netip.Addr{}, err
	}
	defer func() { _ = conn.Close() }()
	local, err := netip.ParseAddrPort(conn.LocalAddr().String())
	return local.Addr().Unmap(), err
}

func addresses() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, a := range all {
		if network, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, network.Addr().Unmap())
		}
	}
	return out, nil
}
