// Package core describes what is served of core/v1.
package core

import "github.com/regent-project/regent/pkg/server/apis/resource"

// Resources are those of the group, and their views under other groups.
var Resources = []resource.Described{namespaces, configMaps, secrets, events}
