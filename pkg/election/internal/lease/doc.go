// Package lease is what is on the coordination.k8s.io Lease of an election: how it is read, watched and written, and what the
// elector's annotations on it mean. It decides nothing.
//
// The API bounds each request. The Watcher keeps the View up to date, to which the answers to writes are added too. What the View
// shows is an Observation: the Lease as this process last saw it, and since when.
package lease
