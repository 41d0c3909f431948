package host_test

import (
	"net"
	"strings"
	"testing"

	"github.com/regent-project/regent/pkg/election/internal/host"
)

func TestOnlyWhatOthersCanDialIsAHost(t *testing.T) {
	for _, good := range []string{"127.0.0.1", "::1", "10.1.2.3", "fe80::1%eth0", "fd00::1", "host-a", "host.example.com"} {
		if err := host.Check(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for bad, why := range map[string]string{
		"":                      "host name",
		net.IP(nil).String():    "without a value",
		"0.0.0.0":               "no process",
		"::":                    "no process",
		"224.0.0.1":             "no process",
		"255.255.255.255":       "no process",
		"127.0.0.1:80":          "without scheme and port",
		"[::1]":                 "without scheme and port",
		"https://host":          "without scheme and port",
		"Host_With_Underscores": "host name",
		"a b":                   "host name",
	} {
		if err := host.Check(bad); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want %q", bad, err, why)
		}
	}
}
