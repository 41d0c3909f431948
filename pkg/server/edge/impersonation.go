package edge

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericfeatures "k8s.io/apiserver/pkg/features"
	"k8s.io/component-base/featuregate"

	"github.com/regent-project/regent/pkg/server/fairness"
)

// WithoutConstrainedImpersonation turns off upstream's constrained impersonation (KEP-5284), whatever its feature gate
// says. It remembers for ten seconds who was allowed to impersonate whom, and does not know logical clusters: what an
// administrator of one cluster may do there, they could do in all others, too. Impersonation by the verb impersonate
// remembers nothing.
type WithoutConstrainedImpersonation struct{ featuregate.FeatureGate }

// Enabled implements featuregate.FeatureGate.
func (w WithoutConstrainedImpersonation) Enabled(key featuregate.Feature) bool {
	return key != genericfeatures.ConstrainedImpersonation && w.FeatureGate.Enabled(key)
}

// placedImpersonation has each question who may impersonate whom take a place among the requests of its tenant.
// Upstream asks them before the request has one: one for each of thousands of headers, and how long an answer takes is
// up to whoever writes the cluster's roles.
type placedImpersonation struct {
	authorizer.Authorizer
	limiter *fairness.Limiter
	flow    func(context.Context, user.Info) fairness.Flow
	// patience is how long a question waits.
	patience time.Duration
}

// Authorize implements authorizer.Authorizer. In this chain of handlers no other request has the verb impersonate:
// reviews ask further inside.
func (p *placedImpersonation) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if !strings.HasPrefix(a.GetVerb(), "impersonate") {
		return p.Authorizer.Authorize(ctx, a)
	}
	waiting, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()
	leave, err := p.limiter.Enter(waiting, p.flow(ctx, a.GetUser()), 1)
	if err != nil {
		return authorizer.DecisionDeny, fmt.Sprintf("%v: try again later", err), nil
	}
	defer leave()
	return p.Authorizer.Authorize(ctx, a)
}

// ConditionsAwareAuthorize implements authorizer.Authorizer.
func (p *placedImpersonation) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	if !strings.HasPrefix(a.GetVerb(), "impersonate") {
		return p.Authorizer.ConditionsAwareAuthorize(ctx, a)
	}
	return authorizer.ConditionsAwareDecisionFromParts(p.Authorize(ctx, a))
}

var _ authorizer.Authorizer = (*placedImpersonation)(nil)
