package leader

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

func TestTheAddressIsTheOneByWhichOthersReachThisProcess(t *testing.T) {
	unknown := errors.New("no such host")
	for name, test := range map[string]struct {
		given, pod string
		route      string // empty: an error
		own        []string
		want       string // empty: an error
	}{
		"given":                         {given: "host-a", pod: "10.0.0.1", route: "10.0.0.2", want: "host-a"},
		"of the Pod":                    {pod: "10.0.0.1", route: "10.0.0.2", own: []string{"10.0.0.3"}, want: "10.0.0.1"},
		"of the Pod, and it is none":    {pod: "<nil>", route: "10.0.0.2"},
		"towards the server":            {route: "10.0.0.2", own: []string{"127.0.0.1", "10.0.0.3"}, want: "10.0.0.2"},
		"the server is on this machine": {route: "127.0.0.1", own: []string{"127.0.0.1", "fe80::1", "10.0.0.3"}, want: "10.0.0.3"},
		"the server has no address":     {own: []string{"127.0.0.1", "fd00::3"}, want: "fd00::3"},
		"all are on this machine":       {route: "::1", own: []string{"127.0.0.1", "::1"}, want: "::1"},
		"no server, all are here":       {own: []string{"127.0.0.1"}, want: "127.0.0.1"},
		"none":                          {},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine{
				env: func(name string) string {
					if name != "POD_IP" {
						t.Errorf("asks the environment for %s", name)
					}
					return test.pod
				},
				route: func(server string) (netip.Addr, error) {
					if server != "10.9.9.9:443" {
						t.Errorf("asks for the route to %q", server)
					}
					if test.route == "" {
						return netip.Addr{}, unknown
					}
					return netip.MustParseAddr(test.route), nil
				},
				addresses: func() (out []netip.Addr, _ error) {
					for _, ip := range test.own {
						out = append(out, netip.MustParseAddr(ip))
					}
					return out, nil
				},
			}
			got, err := m.advertised(test.given, &rest.Config{Host: "https://10.9.9.9"})
			if got != test.want || (err == nil) != (test.want != "") {
				t.Errorf("%q, %v; want %q", got, err, test.want)
			}
			if err != nil && !strings.Contains(err.Error(), "AdvertiseAddress") {
				t.Errorf("the error names no field: %v", err)
			}
		})
	}
}

func TestTheServerIsFoundInAnyFormOfHost(t *testing.T) {
	for host, want := range map[string]string{
		"https://10.0.0.1:6443/clusters/a": "10.0.0.1:6443",
		"https://api.example.com":          "api.example.com:443",
		"https://[fd00::1]:6443":           "[fd00::1]:6443",
		"10.0.0.1:6443":                    "10.0.0.1:6443",
		"localhost":                        "localhost:443",
		"":                                 "",
		"://":                              "",
	} {
		if got := serverOf(&rest.Config{Host: host}); got != want {
			t.Errorf("%q: %q, want %q", host, got, want)
		}
	}
}

// The probe listens where others dial, if that address is this machine's, and everywhere otherwise, as behind a NAT.
func TestTheProbeListensWhereOthersDial(t *testing.T) {
	own := func(ip netip.Addr) bool { return ip == netip.MustParseAddr("10.0.0.1") }
	for advertised, want := range map[string]string{"10.0.0.1": "10.0.0.1:7", "192.0.2.1": ":7", "host-a": ":7"} {
		if got := (Config{ProbePort: 7}).listen(advertised, own); got != want {
			t.Errorf("%s: %q, want %q", advertised, got, want)
		}
	}
	if got := (Config{BindAddress: "::1", ProbePort: 7}).listen("10.0.0.1", own); got != "[::1]:7" {
		t.Errorf("bound to %q", got)
	}
}

// The loopback addresses are this machine's, on any machine.
func TestThisMachineIsAsked(t *testing.T) {
	if !thisMachine.has(netip.MustParseAddr("127.0.0.1")) || thisMachine.has(netip.MustParseAddr("192.0.2.1")) {
		t.Error("does not know which addresses this machine has")
	}
	if ip, err := thisMachine.route("127.0.0.1:443"); err != nil || ip.String() != "127.0.0.1" {
		t.Errorf("the route to itself is from %v, %v", ip, err)
	}
}
