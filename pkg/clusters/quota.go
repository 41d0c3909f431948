package clusters

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// The annotations on a LogicalCluster that say how much may be stored in its cluster, instead of what the shard's flags
// say. Values are quantities, such as 20k or 64Mi. 0: no limit. Only members of system:masters set them.
const (
	MaxObjectsAnnotation = "quota.regent.dev/max-objects"
	MaxBytesAnnotation   = "quota.regent.dev/max-bytes"
	// MaxWorkspacesAnnotation is about the Workspaces in the cluster, and not about those in clusters below it.
	MaxWorkspacesAnnotation = "quota.regent.dev/max-workspaces"
)

// QuotaAnnotations are all of them.
var QuotaAnnotations = []string{MaxObjectsAnnotation, MaxBytesAnnotation, MaxWorkspacesAnnotation}

// ParseQuota returns the value of an annotation for quotas.
func ParseQuota(value string) (int64, error) {
	q, err := resource.ParseQuantity(value)
	if err != nil {
		return 0, fmt.Errorf("%q is no quantity, such as 20000, 20k or 64Mi: %w", value, err)
	}
	n, whole := q.AsInt64()
	if !whole || n < 0 {
		return 0, fmt.Errorf("%q must be a whole number, 0 or more", value)
	}
	return n, nil
}
