package control

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Registry is a fixed set of validated descriptors.
type Registry[D any] struct {
	scopes      []Scope
	descriptors []Descriptor[D]
}

// NewRegistry validates the descriptors and keeps them in the given order. The error names every faulty one: a name
// that is empty, malformed or repeated, a missing constructor, an unknown scope, or a need that is unknown, of another
// scope, or circular.
func NewRegistry[D any](descriptors ...Descriptor[D]) (*Registry[D], error) {
	return NewRegistryOf([]Scope{LeaderOnly, EveryReplica}, descriptors...)
}

// NewRegistryOf is NewRegistry for a program with scopes of its own: it accepts these and no others.
func NewRegistryOf[D any](scopes []Scope, descriptors ...Descriptor[D]) (*Registry[D], error) {
	var errs []error
	byName := map[string]Descriptor[D]{}
	for i, d := range descriptors {
		if d.Name == "" {
			errs = append(errs, fmt.Errorf("controller %d of %d has no name: give every descriptor a unique Name", i+1, len(descriptors)))
			continue
		}
		if msgs := validation.IsDNS1123Label(d.Name); len(msgs) > 0 {
			errs = append(errs, fmt.Errorf("controller name %q is not a DNS label: %s", d.Name, strings.Join(msgs, "; ")))
		}
		if _, ok := byName[d.Name]; ok {
			errs = append(errs, fmt.Errorf("controller %q is registered twice: names must be unique", d.Name))
		}
		if d.New == nil {
			errs = append(errs, fmt.Errorf("controller %q has no constructor: set New", d.Name))
		}
		if !slices.Contains(scopes, d.Scope) {
			errs = append(errs, fmt.Errorf("controller %q has unknown scope %q", d.Name, d.Scope))
		}
		byName[d.Name] = d
	}
	for _, d := range descriptors {
		for _, need := range d.Needs {
			switch n, ok := byName[need]; {
			case !ok:
				errs = append(errs, fmt.Errorf("controller %q needs %q, which is not registered", d.Name, need))
			case n.Scope != d.Scope:
				errs = append(errs, fmt.Errorf("controller %q (%s) needs %q (%s): both must have the same scope", d.Name, d.Scope, need, n.Scope))
			}
		}
	}
	if cycle := findCycle(descriptors, byName); cycle != nil {
		errs = append(errs, fmt.Errorf("controllers need each other in a circle: %s", strings.Join(cycle, " -> ")))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("invalid controller registry: %w", err)
	}
	return &Registry[D]{scopes: slices.Clone(scopes), descriptors: slices.Clone(descriptors)}, nil
}

// With returns a registry of r's descriptors followed by more, validated together, with the same scopes. Programs use
// it to add their controllers to those of a library.
func (r *Registry[D]) With(more ...Descriptor[D]) (*Registry[D], error) {
	return NewRegistryOf(r.scopes, slices.Concat(r.descriptors, more)...)
}

// Scoped returns the descriptors of the given scopes, in the order of registration.
func (r *Registry[D]) Scoped(scopes ...Scope) []Descriptor[D] {
	var out []Descriptor[D]
	for _, d := range r.descriptors {
		if slices.Contains(scopes, d.Scope) {
			out = append(out, d)
		}
	}
	return out
}

// Names returns the names of all controllers, in the order of registration.
func (r *Registry[D]) Names() []string {
	var out []string
	for _, d := range r.descriptors {
		out = append(out, d.Name)
	}
	return out
}

// findCycle returns the names along a cycle of needs, or nil.
func findCycle[D any](descriptors []Descriptor[D], byName map[string]Descriptor[D]) []string {
	done := map[string]bool{}
	var path []string
	var visit func(name string) []string
	visit = func(name string) []string {
		if i := slices.Index(path, name); i >= 0 {
			return append(slices.Clone(path[i:]), name)
		}
		if done[name] {
			return nil
		}
		path = append(path, name)
		for _, need := range byName[name].Needs {
			if cycle := visit(need); cycle != nil {
				return cycle
			}
		}
		path = path[:len(path)-1]
		done[name] = true
		return nil
	}
	for _, d := range descriptors {
		if cycle := visit(d.Name); cycle != nil {
			return cycle
		}
	}
	return nil
}
