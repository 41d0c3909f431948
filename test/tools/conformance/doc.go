// Package conformance runs Kubernetes' own specs for custom resources against `regent dev`, in a workspace, and
// compares the results with what docs/CONFORMANCE.md says. The specs are those of the module k8s.io/kubernetes,
// unmodified. It is a module of its own, so that what they need stays out of the product's go.mod. `make conformance`
// builds bin/regent and bin/kubectl, and runs it.
package conformance
