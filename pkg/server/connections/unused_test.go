package connections

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// offered is a listener that has been offered connections from addresses.
type offered chan net.Conn

func (o offered) Accept() (net.Conn, error) { return <-o, nil }
func (offered) Close() error                { return nil }
func (offered) Addr() net.Addr              { return nil }

// open is a connection that is open until it is closed.
type open struct {
	remoteAt
	closed chan struct{}
}

func (o open) Close() error {
	close(o.closed)
	return nil
}

func (o open) isOpen() bool {
	select {
	case <-o.closed:
		return false
	default:
		return true
	}
}

func TestAServerThatShutsDownClosesConnectionsThatNobodyUses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := make(offered, 3)
		c := Limit(t.Context(), inner, Limits{Total: 10})
		accept := func(port int) open {
			one := open{remoteAt{remote: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}}, make(chan struct{})}
			inner <- one
			if _, err := c.Accept(); err != nil {
				t.Fatal(err)
			}
			return one
		}
		unused, used, busy := accept(1), accept(2), accept(3)
		ask := func(over open) (finish func()) {
			hold, ended := make(chan struct{}), make(chan struct{})
			handler := c.Serving(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold }))
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			req.RemoteAddr = over.remote.String()
			go func() {
				defer close(ended)
				handler.ServeHTTP(nil, req)
			}()
			return func() { close(hold); <-ended }
		}
		finishUsed, finishBusy := ask(used), ask(busy)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.CloseUnused(ctx)
		}()
		are := func(when string, want ...bool) {
			t.Helper()
			time.Sleep(goodbye + time.Millisecond)
			synctest.Wait()
			for n, one := range []open{unused, used, busy} {
				if one.isOpen() != want[n] {
					t.Errorf("%s: connection %d is open: %t", when, n, one.isOpen())
				}
			}
		}
		are("it accepts connections", true, true, true)
		_ = c.Close()
		_ = c.Close()
		are("it has closed", false, true, true)
		finishUsed()
		are("a request has finished", false, false, true)
		cancel()
		<-ended
		are("it has given up", false, false, false)
		finishBusy()
		if c.open != 0 || len(c.clients) != 0 {
			t.Errorf("%d connections are counted, of %v", c.open, c.clients)
		}
		for address := range c.byRemote.Range {
			t.Errorf("%v is remembered", address)
		}
	})
}
