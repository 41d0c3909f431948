// Package coordination describes coordination.k8s.io: leases (v1) and lease candidates (v1beta1).
package coordination

import "github.com/regent-project/regent/pkg/server/apis/resource"

// Resources are those of the group.
var Resources = []resource.Described{leases, leaseCandidates}
