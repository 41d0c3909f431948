package server

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

// A replica to which nobody gives a name has one that stays, whatever its host is called.
func TestAReplicaIsCalledAfterItsHostAndPort(t *testing.T) {
	for host, want := range map[string]string{
		"host-a":                             "host-a-6443",
		"host-a.example.com":                 "host-a.example.com-6443",
		"Host_A":                             "host-a-6443",
		"-a-.-b-..c.":                        "a.b.c-6443",
		"büro":                               "b-ro-6443",
		"..._":                               "replica-6443",
		"":                                   "replica-6443",
		strings.Repeat("a", 70):              strings.Repeat("a", 58) + "-6443",
		strings.Repeat("a", 57) + ".b":       strings.Repeat("a", 57) + "-6443",
		strings.Repeat("a", 56) + "." + "bb": strings.Repeat("a", 56) + ".b-6443",
	} {
		for range 2 {
			if got := replicaName(func() (string, error) { return host, nil }, 6443); got != want {
				t.Errorf("on %q it is called %q, want %q", host, got, want)
			}
		}
		if faults := validation.IsDNS1123Subdomain(want); len(faults) > 0 || len(want) > LongestReplica {
			t.Errorf("%q is no name: %q", want, faults)
		}
	}
	if got := replicaName(func() (string, error) { return "", errors.New("no name") }, 6443); got != "replica-6443" {
		t.Errorf("on a host without a name it is called %q", got)
	}
}
