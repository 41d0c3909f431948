// Package core describes core/v1: namespaces, configmaps, secrets and events.
package core

import "github.com/regent-project/regent/pkg/server/apis/resource"

// Resources are those of the group, and their views under other groups.
var Resources = []resource.Described{namespaces, configMaps, secrets, events}
