package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"google.golang.org/grpc/grpclog"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/component-base/logs"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/cmd/server/dev"
)

// serve calls run with a context that ends at a signal, or with the parent process, and logs the end. It is the whole
// life of the process.
func serve(run func(context.Context) error) error {
	quieten()
	defer logs.FlushLogs()
	parentEnded := make(chan struct{})
	if err := dev.UntilParentEnds(func() { close(parentEnded) }); err != nil {
		return usageError{err}
	}
	ctx, stop := untilSignal(context.Background(), parentEnded)
	defer stop()
	limitMemory(ctx)
	defer paceCollector()()
	if err := run(ctx); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Stopped")
	return nil
}

// untilSignal returns a context that ends at the first SIGTERM or SIGINT, or when the parent process has ended. A
// second signal ends the process at once. The returned function releases the signals, and returns when nothing waits
// for them any more.
func untilSignal(parent context.Context, parentEnded <-chan struct{}) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	done := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case s := <-signals:
			klog.FromContext(ctx).Info("Stopping", "signal", s.String())
			cancel(fmt.Errorf("received signal %q", s))
		case <-parentEnded:
			klog.FromContext(ctx).Info("Stopping", "reason", "the parent process has ended")
			cancel(errors.New("the parent process has ended"))
		case <-done:
			return
		}
		select {
		case s := <-signals:
			klog.FromContext(ctx).Error(errors.New("second signal"), "Exiting at once", "signal", s.String())
			klog.Flush()
			os.Exit(exitFailure)
		case <-done:
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		waiting.Wait()
		cancel(nil)
	}
}

// Upstream logs these as errors when a client disconnects before its answer, or when an answer takes too long. Nobody
// who reads this log could act on them: the client knows, and metrics and the audit log count it.
var (
	afterTheClient = []string{"Post-timeout activity", "post-timeout activity", "Timeout or abort while handling"}
	answerFailed   = "apiserver " // received an error that is not an metav1.Status; was unable to write; to close
	clientsFault   = []string{"http: Handler timeout", "context canceled", "context deadline exceeded"}
)

// quieten removes lines that no reader can act on from the log at its default verbosity.
func quieten() {
	// gRPC would log each attempt to reach an etcd that is away. /readyz and the server's own log say so already.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))

	log := utilruntime.ErrorHandlers[0]
	utilruntime.ErrorHandlers[0] = func(ctx context.Context, err error, msg string, keysAndValues ...any) {
		if !isAboutClients(err, msg) || klog.V(4).Enabled() {
			log(ctx, err, msg, keysAndValues...)
		}
	}
}

// isAboutClients reports whether an error concerns only the client of a request.
func isAboutClients(err error, msg string) bool {
	if err != nil {
		msg += " " + err.Error()
	}
	has := func(part string) bool { return strings.Contains(msg, part) }
	return slices.ContainsFunc(afterTheClient, has) || has(answerFailed) && slices.ContainsFunc(clientsFault, has)
}

// threadsPerCPU is how many Go threads run at once for each CPU. BenchmarkFlood compares: with one, who asks beside a
// flood waits four times as long.
const threadsPerCPU = 3

// shareCPUs has more threads run Go code than there are CPUs, and returns how many CPUs there are. Go looks for what
// has arrived on connections only when a thread has nothing else to do, or else each 10 ms. While a flood keeps as many
// threads busy as there are CPUs, every request waits for that, also one that has a place at once. Of more threads one
// is idle, and the kernel lets it in. GOMAXPROCS decides otherwise.
func shareCPUs() (cpus int) {
	cpus = runtime.GOMAXPROCS(0)
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(threadsPerCPU * cpus)
	}
	return cpus
}
