package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestBadInputIsOneLineAndExitCode2(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"frobnicate"}, "frobnicate"},
		{[]string{"start", "--bogus"}, "--bogus"},
		{[]string{"start", "extra"}, "extra"},
		{[]string{"start", "--secure-port=many"}, "--secure-port"},
		{[]string{"start", "--secure-port=0"}, "--secure-port"},
		{[]string{"start", "--leader-election-lease-duration=15500ms"}, "--leader-election-lease-duration"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(c.args, &stdout, &stderr)
		if code != exitUsage {
			t.Errorf("%q: exit code %d, want %d", c.args, code, exitUsage)
		}
		if strings.Count(stderr.String(), "\n") != 1 || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%q: want one line with %s, got:\n%s", c.args, c.want, stderr.String())
		}
	}
}
