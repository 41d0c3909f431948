package upgrade

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regent-project/regent/test/e2e/harness"
	"github.com/regent-project/regent/test/e2e/proxy"
)

// noticed is how long fronts serve on after SIGTERM: long enough for the balancer to see that they are not ready.
// asked is how often it looks.
const noticed, asked = time.Second, 200 * time.Millisecond

// balance starts a load balancer before fronts, and returns its URL. It passes connections on to fronts that were ready
// when it last asked, as they are: TLS is the fronts' own.
func balance(t *testing.T, fronts []*harness.Front) string {
	t.Helper()
	ready := make([]atomic.Bool, len(fronts))
	var turn atomic.Int64
	lb, err := proxy.Route(func(net.Addr, net.Addr) (string, error) {
		for range fronts {
			if n := int(turn.Add(1)) % len(fronts); ready[n].Load() {
				return strings.TrimPrefix(fronts[n].URL, "https://"), nil
			}
		}
		return "", errors.New("no front is ready")
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	t.Cleanup(func() {
		stop()
		asking.Wait()
		lb.Close()
	})
	var first sync.WaitGroup
	for n, f := range fronts {
		client := newClient(t, f.AdminConfig(""))
		first.Add(1)
		asking.Go(func() {
			heard := sync.OnceFunc(first.Done)
			tick := time.NewTicker(asked)
			defer tick.Stop()
			for ctx.Err() == nil {
				asking, cancel := context.WithTimeout(ctx, time.Second)
				status, _, err := client.do(asking, "GET", f.URL+"/readyz", nil)
				cancel()
				ready[n].Store(err == nil && status == 200)
				heard()
				select {
				case <-ctx.Done():
				case <-tick.C:
				}
			}
		})
	}
	first.Wait()
	return "https://" + lb.Addr()
}
