// Package lease reads, watches and writes the coordination.k8s.io Lease of an election, and knows what the elector's
// annotations on it mean. It decides nothing.
//
// API bounds each request. A Watcher keeps a View up to date, and so do the answers to writes. The View returns an
// Observation: the Lease as this process last saw it, and since when.
package lease
