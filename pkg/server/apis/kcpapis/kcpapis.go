// Package kcpapis describes apis.kcp.io: APIResourceSchemas (v1alpha1), which describe custom resources; APIExports
// (v1alpha2), by which a logical cluster offers them; and APIBindings (v1alpha2), by which other logical clusters take
// them.
package kcpapis

import (
	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/regent-project/regent/pkg/server/apis/resource"
)

// Resources are the resources of the group.
var Resources = []resource.Described{schemas, exports, bindings}

var validName = validation.NameIsDNSSubdomain
