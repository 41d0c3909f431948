// Package catalog is the one list of the controllers that the server runs.
package catalog

import (
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/aggregation"
	"github.com/regent-project/regent/pkg/controllers/assignment"
	"github.com/regent-project/regent/pkg/controllers/bootstrap"
	"github.com/regent-project/regent/pkg/controllers/definition"
	"github.com/regent-project/regent/pkg/controllers/garbagecollector"
	"github.com/regent-project/regent/pkg/controllers/leasecandidate"
	"github.com/regent-project/regent/pkg/controllers/logicalcluster"
	"github.com/regent-project/regent/pkg/controllers/members"
	"github.com/regent-project/regent/pkg/controllers/namespace"
	"github.com/regent-project/regent/pkg/controllers/serviceaccount"
	"github.com/regent-project/regent/pkg/controllers/workspace"
)

// Registry returns the server's controllers. Call it once, at the start, so that a faulty list ends the process before
// it serves.
func Registry() (*controllers.Registry, error) {
	return controllers.NewRegistry(
		bootstrap.Descriptor(),
		members.Descriptor(),
		workspace.Descriptor(),
		assignment.Descriptor(),
		logicalcluster.Descriptor(),
		namespace.Descriptor(),
		serviceaccount.Descriptor(),
		aggregation.Descriptor(),
		definition.Descriptor(),
		garbagecollector.Descriptor(),
		leasecandidate.Descriptor(),
	)
}
