package regenttest_test

import (
	"os"
	"testing"

	"github.com/regent-project/regent/pkg/regenttest"
)

// The tests of a package share a server.
func ExampleMain() {
	var server *regenttest.Server
	// this is the TestMain
	main := func(m *testing.M) {
		os.Exit(regenttest.Main(m, func(s *regenttest.Server) { server = s }))
	}
	// and this a test
	test := func(t *testing.T) {
		alice := server.User(t, server.Workspace(t, "of-alice").Config, "alice")
		t.Log(alice.Host)
	}
	_, _ = main, test
}
