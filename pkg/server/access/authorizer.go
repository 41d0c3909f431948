package access

import (
	"context"
	"fmt"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/warning"

	"github.com/regent-project/regent/pkg/clusters"
)

// Authorizer allows what the RBAC of the context's logical cluster allows, and has no opinion on anything else:
//
//   - In a cluster of workspaces a user must first have the access gate: verb access on the non-resource URL "/", which
//     covers discovery, too. The cluster's own service accounts need no gate, and neither does who asks FromOutside.
//   - In system clusters it allows nothing: they are for members of system:masters.
//   - With clusters.Wildcard it decides on the shard as a whole: reads over all clusters, and endpoints of the process
//     such as /metrics. The ClusterRoleBindings of cluster system:admin say who may do that. The built-in bindings do
//     not count, so it is a right of its own.
//   - Without a cluster in the context it allows nothing: the cluster does not exist, which strangers do not learn.
type Authorizer struct {
	// Policy is in memory. It may be a little behind.
	Policy Policy
	// Fresh reads the policy of a cluster from storage, and returns nil if Policy must have it by now. It is asked
	// before a denial. Nil: never.
	Fresh func(ctx context.Context, cluster logicalcluster.Name) (Policy, error)
}

// The right to enter a cluster.
const (
	accessVerb = "access"
	accessURL  = "/"
)

// outside is the reason for refusing whoever has not been let in. It is the same for clusters that do not exist, and
// for system clusters.
const outside = "there is no such logical cluster, or you may not enter it: its administrators let you in by a ClusterRoleBinding to " + AccessRole

// Authorize implements authorizer.Authorizer.
func (a *Authorizer) Authorize(ctx context.Context, attr authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, reason, err := a.authorize(ctx, attr)
	if reason == outside && !attr.IsResourceRequest() && strings.HasPrefix(attr.GetPath(), "/api") {
		// client-go does not show why discovery is refused: "unknown" is all that kubectl would say
		warning.AddWarning(ctx, "", outside)
	}
	return decision, reason, err
}

func (a *Authorizer) authorize(ctx context.Context, attr authorizer.Attributes) (authorizer.Decision, string, error) {
	cluster, ok := clusters.From(ctx)
	if !ok {
		return authorizer.DecisionNoOpinion, outside, nil
	}
	if extra, ok := limited(attr.GetUser()); ok {
		return authorizer.DecisionDeny, fmt.Sprintf("the identity is limited by its extra %s, which this server cannot honour", extra), nil
	}
	if clusters.IsSystem(cluster) {
		return authorizer.DecisionNoOpinion, outside, nil
	}
	gate := ctx.Value(fromOutside{}) == nil
	decision, reason := a.decide(cluster, a.Policy, attr, gate)
	if decision == authorizer.DecisionAllow || a.Fresh == nil || cluster == clusters.Wildcard {
		return decision, reason, nil
	}
	fresh, err := a.Fresh(ctx, cluster)
	if err != nil {
		return authorizer.DecisionNoOpinion, reason, fmt.Errorf("cannot read the roles and bindings of the logical cluster: %w", err)
	}
	if fresh != nil {
		decision, reason = a.decide(cluster, fresh, attr, gate)
	}
	return decision, reason, nil
}

type fromOutside struct{}

// FromOutside returns a context in which users need not be let into a cluster: it is for the few rights there that are
// about another cluster.
func FromOutside(ctx context.Context) context.Context {
	return context.WithValue(ctx, fromOutside{}, true)
}

func (a *Authorizer) decide(cluster logicalcluster.Name, policy Policy, attr authorizer.Attributes, gate bool) (authorizer.Decision, string) {
	v, namespace := view{Policy: policy, cluster: cluster}, attr.GetNamespace()
	if cluster == clusters.Wildcard {
		v, namespace, gate = view{Policy: policy, cluster: clusters.SystemAdmin, stored: true}, "", false
	}
	who := in(v.cluster, attr.GetUser())
	entered, allowed := who.local || !gate, false
	var missing []error
	v.visit(who, namespace, func(rule ownRule, err error) bool {
		if err != nil {
			missing = append(missing, err)
			return true
		}
		entered = entered || rule.allows(entering)
		allowed = allowed || rule.allows(attr)
		return !entered || !allowed
	})
	switch {
	case !entered:
		return authorizer.DecisionNoOpinion, outside
	case allowed:
		return authorizer.DecisionAllow, ""
	case len(missing) > 0:
		return authorizer.DecisionNoOpinion, "no role allows it, and some that are bound are missing: " + joinFirst(missing).Error()
	}
	return authorizer.DecisionNoOpinion, ""
}

// entering is the request that the gate stands for.
var entering authorizer.Attributes = &authorizer.AttributesRecord{Verb: accessVerb, Path: accessURL}

// ConditionsAwareAuthorize implements authorizer.Authorizer.
func (a *Authorizer) ConditionsAwareAuthorize(ctx context.Context, attr authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, attr))
}

// EvaluateConditions implements authorizer.Authorizer. There are no conditions.
func (a *Authorizer) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

var _ authorizer.Authorizer = (*Authorizer)(nil)
