package command

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/regent-project/regent/pkg/election"
)

func TestBadInputIsOneLineAndExitCode2(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"frobnicate"}, "frobnicate"},
		{[]string{"start", "--bogus"}, "--bogus"},
		{[]string{"start", "extra"}, "extra"},
		{[]string{"start", "--secure-port=many"}, "--secure-port"},
		{[]string{"start", "--secure-port=0"}, "--secure-port"},
		{[]string{"start", "--leader-election-mode=monarchy"}, "--leader-election-mode"},
		{[]string{"start", "--leader-election-mode=for-life"}, "--enable-leader-election"},
		{[]string{"start", "--enable-leader-election", "--leader-election-mode=for-life", "--leader-failure-detection=suspect"}, "--leader-failure-detection"},
		{[]string{"start", "--enable-leader-election", "--leader-election-mode=coordinated", "--leader-election-emulation-version=999.0.0"}, "--leader-election-emulation-version"},
		{[]string{"start", "--enable-leader-election", "--leader-election-mode=coordinated", "--leader-election-emulation-version=new"}, "--leader-election-emulation-version"},
		{[]string{"start", "--leader-election-emulation-version=0.0.0"}, "--leader-election-emulation-version"},
		{[]string{"start", "--enable-leader-election", "--leader-election-mode=coordinated", "--leader-election-name=regent-elections"}, "--leader-election-name"},
		{[]string{"shard", "orphans", "keep"}, "keep"},
		{[]string{"shard", "orphans", "adopt"}, "one logical cluster"},
		{[]string{"shard", "orphans", "delete", "a", "b"}, "one logical cluster"},
		{[]string{"shard", "orphans", "delete", ""}, "one logical cluster"},
		{[]string{"forget-replica"}, "replica"},
		{[]string{"forget-replica", "a", "b"}, "replica"},
		{[]string{"forget-replica", "a", "--server=10.0.0.1:6443"}, "--server"},
		{[]string{"shard", "list", "--server=http://10.0.0.1:6443"}, "--server"},
		{[]string{"shard", "list", "--server=https://10.0.0.1:6443/clusters/root"}, "--server"},
		{[]string{"pki", "rotate"}, "rotate"},
		{[]string{"pki", "init"}, "--shard-base-url"},
		{[]string{"pki", "init", "--shard-base-url=regent.example"}, "--shard-base-url"},
		{[]string{"pki", "install"}, "--from"},
		{[]string{"pki", "renew", "--before=0s"}, "--before"},
		{[]string{"pki", "renew", "-o", "yaml"}, "-o"},
		{[]string{"pki", "roll", "forward"}, "forward"},
		{[]string{"pki", "certify"}, "memberships"},
		{[]string{"pki", "roll", "begin", "now"}, "now"},
		{[]string{"etcd", "--directory="}, "--directory"},
		{[]string{"etcd", "--client-port=65536"}, "--client-port"},
		{[]string{"dev", "--replicas=0"}, "--replicas"},
		{[]string{"dev", "extra"}, "extra"},
		{[]string{"dev", "--", "--bogus"}, "--bogus"},
		{[]string{"dev", "--", "extra"}, "extra"},
		{[]string{"dev", "--", "--secure-port=7000"}, "--secure-port"},
		{[]string{"dev", "--", "--leader-election-lease-duration=1500ms"}, "--leader-election-lease-duration"},
		{[]string{"start", "--leader-election-lease-duration=15500ms"}, "--leader-election-lease-duration"},
		{[]string{"start", "--enable-leader-election=false", "--leader-election-renew-deadline=20s"}, "--leader-election-renew-deadline"},
		{[]string{"start", "--controller-drain-timeout=10s"}, "--controller-drain-timeout"},
		{[]string{"start", "--etcd-prefix=/a//b"}, "--etcd-prefix"},
		{[]string{"start", "--etcd-prefix=/a/../b"}, "--etcd-prefix"},
		{[]string{"start", "--etcd-prefix=/"}, "--etcd-prefix"},
		{[]string{"start", "--secure-port=7000", "--probe-port=7000"}, "--probe-port"},
		{[]string{"start", "--secure-port=7000", "--embedded-etcd-client-port=7000"}, "--embedded-etcd-client-port"},
		{[]string{"start", "--client-ca-file=missing"}, "--client-ca-file"},
		{[]string{"start", "--token-auth-file=missing"}, "--token-auth-file"},
		{[]string{"start", "--audit-policy-file=missing"}, "--audit-policy-file"},
		{[]string{"start", "--etcd-servers=https://127.0.0.1:1", "--etcd-cafile=missing"}, "--etcd-cafile"},
		{[]string{"start", "--logging-format=verse"}, "verse"},
		{[]string{"start", "--feature-gates=Verse=true"}, "Verse"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(c.args, &stdout, &stderr)
		if code != exitUsage {
			t.Errorf("%q: exit code %d, want %d", c.args, code, exitUsage)
		}
		if strings.Count(stderr.String(), "\n") != 1 || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%q: want one line with %s, got:\n%s", c.args, c.want, stderr.String())
		}
		if _, err := os.Stat(".regent"); err == nil {
			t.Fatalf("%q: something was started", c.args)
		}
	}
}

func TestDevTakesEveryModeOfElection(t *testing.T) {
	for _, mode := range election.Modes {
		if err := startFault([]string{"--leader-election-mode=" + string(mode.Name())}, false); err != nil {
			t.Error(err)
		}
	}
}

// Another program may have flags that start has not. Those that dev sets itself are refused anyway.
func TestDevLetsAnotherProgramHaveFlagsOfItsOwn(t *testing.T) {
	for _, c := range []struct {
		args    []string
		further bool
		want    string
	}{
		{[]string{"--faults=stalls", "--leader-election-retry-period=1s"}, true, ""},
		{[]string{"--faults=stalls"}, false, "unknown flag: --faults"},
		{[]string{"--faults=stalls", "--secure-port=1"}, true, "--secure-port is set by dev"},
		{[]string{"--faults=stalls", "--leader-election-lease-duration=1ms"}, true, "--leader-election-lease-duration"},
	} {
		if err := startFault(c.args, c.further); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.args, err, c.want)
		}
	}
}
