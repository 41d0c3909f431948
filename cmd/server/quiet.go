package main

import (
	"context"
	"io"
	"slices"
	"strings"

	"google.golang.org/grpc/grpclog"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// What upstream logs as an error when a client has gone before its answer, or the answer took too long. The client knows,
// metrics and the audit log count it, and nobody at this end could act on it.
var (
	afterTheClient = []string{"Post-timeout activity", "post-timeout activity", "Timeout or abort while handling"}
	answerFailed   = "apiserver " // received an error that is not an metav1.Status; was unable to write; to close
	clientsFault   = []string{"http: Handler timeout", "context canceled", "context deadline exceeded"}
)

// quieten takes out of the log, at its default verbosity, what no reader can act on.
func quieten() {
	// Each attempt to reach an etcd that is away. /readyz tells it, and the server says it in its own words.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))

	log := utilruntime.ErrorHandlers[0]
	utilruntime.ErrorHandlers[0] = func(ctx context.Context, err error, msg string, keysAndValues ...any) {
		if !isAboutClients(err, msg) || klog.V(4).Enabled() {
			log(ctx, err, msg, keysAndValues...)
		}
	}
}

func isAboutClients(err error, msg string) bool {
	if err != nil {
		msg += " " + err.Error()
	}
	has := func(part string) bool { return strings.Contains(msg, part) }
	return slices.ContainsFunc(afterTheClient, has) || has(answerFailed) && slices.ContainsFunc(clientsFault, has)
}
