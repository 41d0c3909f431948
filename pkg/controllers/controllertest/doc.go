// Package controllertest checks controllers against the contract of package controllers, and feeds the informers of
// their tests. Only tests import it.
package controllertest
