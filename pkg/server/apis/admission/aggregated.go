package admission

import (
	"context"
	"fmt"

	"github.com/kcp-dev/logicalcluster/v3"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/regent-project/regent/pkg/clusters"
)

// maxAggregated is how many ClusterRoles with an aggregation rule a logical cluster may have. Each of them is looked at
// again, by the leader and not at its writer's cost, whenever any ClusterRole of the cluster changes.
const maxAggregated = 50

// Aggregated refuses more ClusterRoles with an aggregation rule than a cluster may have. Those that are under way at
// the same time pass together.
type Aggregated struct {
	// Count returns how many a cluster has.
	Count func(logicalcluster.Name) int
}

// Handles implements admission.Interface.
func (g *Aggregated) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update
}

// Validate implements admission.ValidationInterface.
func (g *Aggregated) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !aggregates(a.GetObject()) || aggregates(a.GetOldObject()) {
		return nil
	}
	cluster, ok := clusters.From(ctx)
	if !ok {
		return admission.NewForbidden(a, clusters.ErrNoCluster)
	}
	if g.Count(cluster) >= maxAggregated {
		return admission.NewForbidden(a, fmt.Errorf("a logical cluster may have %d ClusterRoles with an aggregationRule, and this one has them: give one of them another selector, "+
			"or delete those that are not needed", maxAggregated))
	}
	return nil
}

func aggregates(obj any) bool {
	role, ok := obj.(*rbacv1.ClusterRole)
	return ok && role != nil && role.AggregationRule != nil
}

var _ admission.ValidationInterface = (*Aggregated)(nil)
