// Package bench measures failover side by side: ours, client-go's stock elector, the same elected by our API server,
// and a controller-runtime manager, in turns, in one run on one machine, with one etcd and one API server, which is
// ours. It is a module of its own, so that what the peers need stays out of the product's go.mod.
//
// All are measured from outside and in the same way. The time is taken just before the signal is sent to the process
// that leads, and again when a watch on etcd, of this process, brings the first write that names another term. A term's
// controller makes that write as soon as it runs, and tells its process in it, so nothing that the old leader did late
// counts. Lease, renew deadline and retry period are 15 s, 10 s and 2 s for all, which are everybody's defaults.
//
// More is measured of ours alone, by watches of etcd too: each mode of election, what the history costs, leaders that
// hang, that have much memory when they are killed, and whose networks are cut. The cuts are those of a scenario,
// package cuts. Last, it measures what ordinary users notice of a failover (BenchmarkUsers), and what it costs that
// nothing happens (BenchmarkIdle).
package bench
