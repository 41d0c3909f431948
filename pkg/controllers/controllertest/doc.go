// Package controllertest checks controllers against the contract of package controllers, and has sources for the
// informers in their tests. Only tests import it.
package controllertest
