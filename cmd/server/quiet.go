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
