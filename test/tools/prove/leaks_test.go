package main

import (
	"errors"
	"strings"
	"testing"
)

func TestWhatHasLeakedIsToldInALineForEachGoroutine(t *testing.T) {
	const leak = `PASS
goleak: Errors on successful test run: found unexpected goroutines:
[Goroutine 7 in state IO wait, with net.(*conn).Read on top of the stack:
net.(*conn).Read(0x1, {0x2?, 0x3?})
	net/net.go:196 +0x45
net/http.(*http2ClientConn).readLoop(0x4)
	net/http/h2.go:1 +0x1
created by net/http.(*http2Transport).newClientConn in goroutine 5
	net/http/h2.go:2 +0x2
 Goroutine 8 in state select, with main.wait on top of the stack:
main.wait()
	main.go:1 +0x1
created by main.main in goroutine 1
	main.go:2 +0x1
]
exit status 1
`
	const want = `PASS
goleak: Errors on successful test run: found unexpected goroutines:
Goroutine 7 in state IO wait, with net.(*conn).Read on top of the stack: < net.(*conn).Read < net/http.(*http2ClientConn).readLoop, created by net/http.(*http2Transport).newClientConn in goroutine 5
Goroutine 8 in state select, with main.wait on top of the stack: < main.wait, created by main.main in goroutine 1
exit status 1
`
	if got := foldLeaks(leak); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if other := "no leak\n]\n"; foldLeaks(other) != other {
		t.Error(foldLeaks(other))
	}
	var script []string
	for range 100 { // more than a report has room for
		for line := range strings.Lines(leak) {
			script = append(script, "output - "+strings.TrimSuffix(line, "\n"))
		}
	}
	told, _ := scripted(t, errors.New("exit status 1"), script...)
	if n := strings.Count(told, "created by net/http.(*http2Transport).newClientConn in goroutine 5\n"); n != 100 {
		t.Errorf("%d of 100 are told", n)
	}
}
