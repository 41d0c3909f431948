package bundles

import (
	"cmp"
	"slices"
	"strings"

	"github.com/regent-project/regent/pkg/server/bundle"
)

// Inspected is what a bundle has.
type Inspected struct {
	bundle.Header
	Objects    int `json:"objects"`
	Sealed     int `json:"sealed"`
	Deleted    int `json:"deleted"`
	Unreadable int `json:"unreadable"`
	// Resources has a row for each resource, or kind of custom objects.
	Resources []Resource `json:"resources"`
}

// Resource is how many objects of a resource there are, and how many bytes they have as JSON.
type Resource struct {
	Name    string `json:"name"`
	Objects int    `json:"objects"`
	Bytes   int64  `json:"bytes"`
}

// Inspect counts what is in the bundles of a file.
func (f *File) Inspect() (all []Inspected, err error) {
	for _, b := range f.Bundles {
		out, resources := Inspected{Header: b.Header, Objects: b.Objects}, map[string]*Resource{}
		err := b.Each(func(o bundle.Object) error {
			switch {
			case o.Sealed != nil:
				out.Sealed++
			case o.Deleted:
				out.Deleted++
			case o.Unreadable != "":
				out.Unreadable++
			}
			name := resourceOf(o.Key)
			if resources[name] == nil {
				resources[name] = &Resource{Name: name}
			}
			resources[name].Objects++
			resources[name].Bytes += int64(max(len(o.Object), len(o.Sealed)))
			return nil
		})
		if err != nil {
			return nil, err
		}
		for _, r := range resources {
			out.Resources = append(out.Resources, *r)
		}
		slices.SortFunc(out.Resources, func(a, b Resource) int { return cmp.Compare(a.Name, b.Name) })
		all = append(all, out)
	}
	return all, nil
}

// resourceOf returns the name of a key's resource, such as roles.rbac.authorization.k8s.io, or the kind of a custom
// object, such as Widget.example.com.
func resourceOf(key string) string {
	s := strings.Split(key, "/")
	switch {
	case s[0] == "custom":
		return s[2] + "." + s[1]
	case s[0] == "core":
		return s[1]
	}
	return s[1] + "." + s[0]
}
