// Package embed has tests of what other programs build from our packages: API servers on k8s.io/apiserver that are not
// Regent. It is a module of its own, so that what these programs need stays out of the product's go.mod.
package embed
