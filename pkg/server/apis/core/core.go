// Package core describes the served resources of core/v1.
package core

import "github.com/regent-project/regent/pkg/server/apis/resource"

// Resources are the resources of the group, with their views under other groups.
var Resources = []resource.Described{namespaces, configMaps, secrets, serviceAccounts, events}
