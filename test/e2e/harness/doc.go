// Package harness runs what the scenarios need: real etcd and regent processes on loopback, and clients to them. What
// it starts it ends, by pid, when the test ends.
package harness
