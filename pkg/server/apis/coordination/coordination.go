// Package coordination describes the served resources of coordination.k8s.io.
package coordination

import "github.com/regent-project/regent/pkg/server/apis/resource"

// Resources are the resources of the group.
var Resources = []resource.Described{leases, leaseCandidates}
