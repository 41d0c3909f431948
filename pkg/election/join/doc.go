// Package join ends code that was not written to be joined: controllers whose Run returns while workers that it started
// still work, and that leave event handlers on informers that live on. With it such code can be the work of a term: the
// next term begins only when nothing of this one is left, and who is late is named.
//
// The work of an elector's terms:
//
//	elector.Run(ctx, join.Lead(join.Options{}, func(ctx context.Context, term election.Term) error { … }))
//
// A function that starts workers and returns, as a controller of a supervisor:
//
//	join.Controller(join.Starting(func(ctx context.Context) error {
//		c, err := upstream.NewController(client, informers)
//		if err != nil {
//			return err
//		}
//		go c.Start(ctx, 2)
//		return nil
//	}))
//
// New, Scope.Do and Scope.End are for what fits neither.
//
// # What it promises
//
// A Scope consists of what its work starts: the goroutines that inherit its profiler label (see runtime/pprof),
// directly or through others, whichever package starts them. A goroutine can register functions that undo something
// (OnEnd). When the work is over, the scope's context ends, the undo functions are called, the latest first and each
// once, and the caller waits until every goroutine of the scope has ended. Functions of context.AfterFunc on the
// scope's context belong to the scope. Scopes nest: what belongs to an inner one belongs to the outer one. Nobody waits
// for goroutines of other scopes, or for those that were there before.
//
// # Where it ends
//
// Not in the scope, so that nobody waits for it:
//
//   - the function of a timer (time.AfterFunc), and what it starts: the runtime calls it on a goroutine without labels.
//     The same holds for finalizers (runtime.SetFinalizer) and cleanups (runtime.AddCleanup).
//   - what a thread of C calls in Go: it inherits labels from no goroutine. No test of this package has such a thread.
//     What C calls on the thread of a goroutine that has called C runs on that goroutine, and is in its scope.
//   - work that is handed to goroutines of others: a pool that was there before, or a handler that was added to an
//     informer before the informer was started.
//   - goroutines that replace their labels, by pprof.Do or pprof.SetGoroutineLabels with a context that does not come
//     from the scope, and what they start. Nothing in client-go, apimachinery or controller-runtime does so. gRPC does
//     so for the handlers of its servers from v1.82 on, if the environment has GRPC_GO_SERVER_GOROUTINE_LABELS (all, or
//     grpc.method=true). Without it a handler is in the scope in which its server serves.
//   - connections, name lookups and the like, which outlive who opened them and write nothing by themselves: see the
//     list below.
//
// Waited for, although it may not be meant so: a worker that a library starts at its first use and that lives as long
// as the process. If the first use is in a scope, the scope never ends, and its report names that worker. Make such
// things before, or in Outside, or name their functions in Options.Leave. Known ones: an informer that is started in a
// scope with the context of the process; in client-go the first client of a configuration that names a client
// certificate by file; a work queue that nobody shuts down.
//
// That a goroutine has ended is seen, not told: the memory model of Go and its race detector know of no order between
// its last write and what follows End. What terms share needs a mutex or atomics, as it does anyway if nobody joins who
// writes it.
//
// A goroutine cannot be ended from outside, and a panic on a goroutine that the work has started still ends the
// process. Panics of the work itself and of undo functions are contained until all has ended.
//
// # What is left alone
//
// A goroutine is not waited for while one of these functions is on its stack:
//
//   - net/http: the two loops of a connection, the loop of an HTTP/2 connection (net/http, golang.org/x/net/http2),
//     dialling and the handshake
//   - net: connecting, and name lookups that goroutines share
//   - google.golang.org/grpc: the loops of a client's connection, connecting, resolving
//   - os/signal: the loop that the first signal.Notify starts
//
// A goroutine that waits for an answer on such a connection, or for the addresses of a name, is waited for, since none
// of them is on its own stack.
//
// # What it costs
//
// The end of a scope looks at all goroutines of the process (a goroutine profile): 5 to 10 µs for each, so 50 to 100 ms
// for 10,000. Scopes that end at the same time share looks. The pauses between two looks grow, and are never shorter
// than a look takes. OnEnd takes some 4 µs in a function that Scope.Do, Run, Lead or Starting calls, on its own
// goroutine. On other goroutines OnEnd takes a look, unless the program runs with GODEBUG=tracebacklabels=1 in its
// environment, or is linked with -ldflags=-X=runtime.godebugDefault=tracebacklabels=1 (Go 1.26 refuses that key in a
// //go:debug line, and in go.mod). Scope.OnEnd never takes one. No name of the runtime is linked.
package join
