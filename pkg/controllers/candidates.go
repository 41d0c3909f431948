package controllers

import (
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"

	"github.com/regent-project/regent/pkg/clusters"
)

// ByLease is the index of Informers.LeaseCandidates by the Lease that a candidate wants. Its values are Key.String of
// that Lease.
const ByLease = "lease"

// LeaseOf returns the key of the Lease that a candidate wants.
func LeaseOf(c *coordinationv1beta1.LeaseCandidate) clusters.Key {
	return clusters.Key{Cluster: clusters.KeyOf(c).Cluster, Namespace: c.Namespace, Name: c.Spec.LeaseName}
}

// CandidateIndexers are the indexers of Informers.LeaseCandidates.
func CandidateIndexers() map[string]func(*coordinationv1beta1.LeaseCandidate) []string {
	indexers := OwnerIndexers[*coordinationv1beta1.LeaseCandidate]()
	indexers[ByLease] = func(c *coordinationv1beta1.LeaseCandidate) []string { return []string{LeaseOf(c).String()} }
	return indexers
}
