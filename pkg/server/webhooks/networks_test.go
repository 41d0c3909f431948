package webhooks

import (
	"errors"
	"net"
	"net/netip"
	"testing"
)

func TestTheInternetHasNoAddressOfTheOperators(t *testing.T) {
	public, err := ParseNetworks([]string{Public})
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]bool{
		"1.1.1.1": true, "93.184.215.14": true, "2606:4700::1111": true, "::ffff:1.1.1.1": true,
		"127.0.0.1": false, "127.9.9.9": false, "::1": false, "0.0.0.0": false, "::": false, "0.1.2.3": false,
		"10.1.2.3": false, "172.16.0.1": false, "192.168.1.1": false, "fd00:ec2::254": false, "fc00::1": false,
		"169.254.169.254": false, "fe80::1%eth0": false, "100.100.100.200": false, "168.63.129.16": false, "192.0.0.192": false,
		"224.0.0.1": false, "255.255.255.255": false, "ff02::1": false, "::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false,
		"64:ff9b::7f00:1": false, "2002:7f00:1::": false, "::7f00:1": false, "fec0::1": false, "2001:db8::1": false,
	} {
		if got := public.Allows(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %v, want %v", address, got, want)
		}
	}
}

func TestNetworksAreWhatTheOperatorSays(t *testing.T) {
	some, err := ParseNetworks([]string{"10.1.0.0/16", "192.168.1.7", "fd00::/64"})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{
		"10.1.2.3": true, "10.2.0.1": false, "192.168.1.7": true, "192.168.1.8": false, "fd00::5": true, "[fd00::5]": true, "1.1.1.1": false,
		"hooks.example.com": true, // which may be anywhere: it is looked at when it is dialled
	} {
		if got := some.AllowsHost(host); got != want {
			t.Errorf("%s: %v, want %v", host, got, want)
		}
	}
	for _, faulty := range []string{"", "publik", "10.0.0.0/33", "example.com"} {
		if _, err := ParseNetworks([]string{faulty}); err == nil {
			t.Errorf("%q is a network", faulty)
		}
	}
	none, err := ParseNetworks(nil)
	if err != nil || !none.Empty() || none.AllowsHost("example.com") || none.AllowsHost("1.1.1.1") {
		t.Errorf("of nothing: %v, %v", none, err)
	}
}

// A name says nothing about where it leads, so that what is dialled is judged.
func TestNoConnectionIsOpenedToAnAddressThatIsNotAllowed(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	public, err := ParseNetworks([]string{Public})
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]"} {
		if conn, err := public.Dial(t.Context(), "tcp", host+":"+port); !errors.Is(err, ErrNotAllowed) {
			t.Errorf("%s: %v, %v", host, conn, err)
		}
	}
	loopback, err := ParseNetworks([]string{"127.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := loopback.Dial(t.Context(), "tcp4", "localhost:"+port)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}
