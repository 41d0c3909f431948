// Package election runs a function in terms: for as long as this process holds a coordination.k8s.io Lease, again and
// again, without ever ending the process.
//
// client-go's leaderelection acquires and renews; everything around it is here: waiting for a lease that can be won
// without writing or polling, ending a term in order (cancel, drain, join, release), and starting the next one in the
// same process. The package knows leases and no controllers.
package election
