// Package electiontest is an in-memory Lease with compare-and-swap and with faults, for tests of leader election.
//
// A Store keeps one Lease as an API server would: it counts revisions, gives uids, refuses writes on an old revision or
// for another uid, and sends every change to watches, in order. (client-go's fake clientset does not check
// resourceVersion, so a test with it proves nothing about elections.) It can be restored from a backup, as an etcd is.
// Each replica in a test has a Client of its own, and each Client has its own faults. All waiting is on channels and
// timers, so that testing/synctest can control the clock.
package electiontest
