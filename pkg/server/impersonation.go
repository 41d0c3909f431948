package server

import (
	genericfeatures "k8s.io/apiserver/pkg/features"
	"k8s.io/component-base/featuregate"
)

// withoutConstrainedImpersonation turns off upstream's constrained impersonation (KEP-5284), whatever its feature gate says. It remembers for ten
// seconds who was allowed to impersonate whom, and does not know logical clusters: what an administrator of one cluster may do there, he could
// do in all others, too. Impersonation by the verb impersonate remembers nothing.
type withoutConstrainedImpersonation struct{ featuregate.FeatureGate }

// Enabled implements featuregate.FeatureGate.
func (w withoutConstrainedImpersonation) Enabled(key featuregate.Feature) bool {
	return key != genericfeatures.ConstrainedImpersonation && w.FeatureGate.Enabled(key)
}
