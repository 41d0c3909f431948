// Package regenttest starts Regent for Go tests: a shard in one line, or an installation of several.
//
//	func TestAgainstAShard(t *testing.T) {
//		server := regenttest.Start(t)
//		client, err := kubernetes.NewForConfig(server.Workspace(t, "a").Config)
//		...
//
// What it starts are processes of the program regent, as an operator runs them, with an etcd for each shard in a
// directory of the test: so what a test does to them (kill -9, a pause, a network that is cut) is what happens to them
// in earnest. They listen on loopback, on ports that are free. They end with the test, and with the test's process,
// however that ends. If the test fails, the ends of their logs are shown.
//
// # The program
//
// It is looked for in this order; the first that is found counts:
//
//   - the file that [Program] names
//   - the file that $REGENT names
//   - a regent of this library's version that an earlier test has built
//   - a regent of this library's version on the PATH, or where go install puts programs
//   - this library's version, which is built: that takes minutes, once. A library that is replaced by a directory is
//     built from the repository that has it.
//
// # One server for many tests
//
// A workspace is a cluster of its own, and made in a moment. So the tests of a package can share a server that
// [Main] starts, each with a workspace of its own, beside each other.
//
// It runs where regent does: on Linux and macOS.
package regenttest
