// Package browser tests the page of pkg/server/ui in a real Chromium, against `regent dev`, through `regent ui`. It is
// a module of its own, so that what drives the browser stays out of the product's go.mod. The Makefile builds
// bin/regent before it.
package browser
