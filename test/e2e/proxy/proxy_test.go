package proxy_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regent-project/regent/test/e2e/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatIsStalledArrivesLaterAndWhatIsCutIsGone(t *testing.T) {
	p, err := proxy.Start(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c := dial(t, p)
	answer := bufio.NewReader(c)
	say := func() {
		t.Helper()
		if _, err := io.WriteString(c, "x\n"); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(within time.Duration) error {
		_ = c.SetReadDeadline(time.Now().Add(within))
		_, err := answer.ReadString('\n')
		return err
	}
	say()
	if err := hear(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	p.Stall()
	say()
	if err := hear(100 * time.Millisecond); err == nil {
		t.Error("an answer although stalled")
	}
	p.Resume()
	if err := hear(10 * time.Second); err != nil {
		t.Errorf("no answer after the stall: %v", err)
	}
	p.Cut()
	if err := hear(10 * time.Second); err == nil {
		t.Error("an answer although cut")
	}
	if _, err := dial(t, p).Read(make([]byte, 1)); err == nil {
		t.Error("a new connection lives although cut")
	}
	p.Resume()
	c = dial(t, p)
	answer = bufio.NewReader(c)
	say()
	if err := hear(10 * time.Second); err != nil {
		t.Errorf("no answer after the cut: %v", err)
	}
}

func TestAConnectionGoesWhereItsOpenerIsSent(t *testing.T) {
	target := echo(t)
	known := make(chan string, 1)
	p, err := proxy.Route(func(from, _ net.Addr) (string, error) {
		if from.String() != <-known {
			return "", errors.New("a stranger")
		}
		return target, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c := dial(t, p)
	known <- c.LocalAddr().String()
	if _, err := io.WriteString(c, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Errorf("no answer to one who has a target: %v", err)
	}
	c = dial(t, p)
	known <- "nobody"
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("an answer to one who has none")
	}
}

func TestCloseEndsStalledConnections(t *testing.T) {
	p, err := proxy.Start(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	p.Stall()
	c := dial(t, p)
	p.Close()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection lives")
	}
}

func dial(t *testing.T, p *proxy.Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// echo serves until the test ends.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	return l.Addr().String()
}
