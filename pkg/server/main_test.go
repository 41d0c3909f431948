package server

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Started by packages' init functions, for the life of the process.
		goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		goleak.IgnoreAnyFunction("go.opencensus.io/stats/view.(*worker).start"),
		// Upstream's: each read that waits for a watch cache leaves a timer behind for up to 3 s.
		goleak.IgnoreTopFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2"),
		// Upstream's: such a read does not heed the end of its context, whoever makes it: a store that counts
		// its objects, or a request whose client has gone, for which the filter that bounds requests waits.
		goleak.IgnoreAnyFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked"),
		goleak.IgnoreTopFunction("k8s.io/apiserver/pkg/server/filters.(*timeoutHandler).ServeHTTP.func2.1"),
		// Upstream's: the audit log's writer looks for old files as long as the process lives.
		goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"),
		// Upstream's: healthz.(*log).Check starts it at the first health check, to see whether the log can be
		// flushed, for the life of the process. Between flushes nothing else is on its stack.
		goleak.IgnoreAnyFunction("k8s.io/apimachinery/pkg/util/wait.Forever"),
	)
}
