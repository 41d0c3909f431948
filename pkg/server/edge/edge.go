// Package edge is what each request passes before an API answers it: limits, fairness between tenants, authentication,
// the logical cluster of its URL, and its fencing token. Edge.BuildHandlerChain has the list.
package edge

import (
	"net/http"

	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/regent-project/regent/pkg/server/fairness"
	"github.com/regent-project/regent/pkg/server/identity"
	"github.com/regent-project/regent/pkg/server/routing"
)

// Edge builds the chain of handlers. All fields but Fencing are needed.
type Edge struct {
	Limits Limits
	// Identity says who asks, and what they may do.
	Identity *identity.Identity
	// Directory finds logical clusters.
	Directory routing.Resolver
	// FencingRequired says whether the leader's controllers must send a token: false without leader election.
	// Fencing says what happens to their writes without one, and CheckToken whether the term of a token goes on.
	FencingRequired bool
	Fencing         Fencing
	CheckToken      CheckToken
	// Usage says how much a list reads, and Tally is told what was asked for.
	Usage Usage
	Tally *fairness.Tally
	// Known says whether etcd is known to be this shard's. Until then requests for objects are refused.
	Known healthz.HealthChecker
	// Custom returns a handler that serves what logical clusters define themselves, and passes all else on.
	Custom func(next http.Handler) http.Handler
}
