// Package coordination describes what is served of coordination.k8s.io.
package coordination

import "github.com/regent-project/regent/pkg/server/apis/resource"

// Resources are those of the group.
var Resources = []resource.Described{leases, leaseCandidates}
