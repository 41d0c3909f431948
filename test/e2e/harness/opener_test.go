package harness

import (
	"net"
	"os"
	"testing"
)

func TestTheOpenerOfAConnectionIsFound(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		pids []int
		want int
	}{
		"this process":       {[]int{1, os.Getpid()}, os.Getpid()},
		"none of those":      {[]int{1}, 0},
		"nobody is asked of": {nil, 0},
	} {
		if pid, err := opener(client.LocalAddr(), client.RemoteAddr(), c.pids...); pid != c.want || err != nil {
			t.Errorf("%s: %d (%v), want %d", name, pid, err, c.want)
		}
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if pid, err := opener(client.LocalAddr(), client.RemoteAddr(), os.Getpid()); err == nil {
		t.Errorf("a connection that is closed has the opener %d", pid)
	}
}
