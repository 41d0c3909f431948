// Package electiontest is an in-memory compare-and-swap Lease with faults, for tests of what elects by it.
//
// A Store keeps one Lease as an API server would: it counts revisions, gives uids, refuses a write on an old revision
// or another uid, and tells watches of every change, in order. (client-go's fake clientset checks no resourceVersion, so
// a test on it proves nothing about elections.) Each replica in a test has a Client of its own, and each Client its own
// faults. All waiting is on channels and timers, so that testing/synctest can run the clock.
package electiontest
