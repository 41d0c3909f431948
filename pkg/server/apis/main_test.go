package apis

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(
		m,
		// Upstream's: each read that waits for a watch cache leaves a timer behind for up to 3 s.
		goleak.IgnoreTopFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2"),
		// Upstream's: such a read does not heed the end of its context, whoever makes it: a store that counts
		// its objects, or a request whose client has gone, for which the filter that bounds requests waits.
		goleak.IgnoreAnyFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked"),
		goleak.IgnoreTopFunction("k8s.io/apiserver/pkg/server/filters.(*timeoutHandler).ServeHTTP.func2.1"),
		// Upstream's: checks that the log is flushed, for as long as the process lives.
		goleak.IgnoreAnyFunction("k8s.io/apiserver/pkg/server/healthz.(*log).Check.func1"),
		goleak.IgnoreAnyFunction("k8s.io/apimachinery/pkg/util/wait.Forever"),
		// Flushes the log for as long as the process lives.
		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
	)
}
