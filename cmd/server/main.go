// Command regent is an API server for logical clusters whose controllers run under exactly one leader.
package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

func main() { os.Exit(run(asPlugin(os.Args), os.Stdout, os.Stderr)) }

// The names under which kubectl runs this program: as its plugin `kubectl regent`, and to complete that plugin's
// arguments.
const (
	pluginName     = "kubectl-regent"
	completionName = "kubectl_complete-regent"
)

func isPlugin() bool { return isNamed(os.Args[0], pluginName) || isNamed(os.Args[0], completionName) }

func isNamed(program, name string) bool { return filepath.Base(program) == name }

// asPlugin returns the arguments of a program that may have been started by kubectl.
func asPlugin(args []string) []string {
	if isNamed(args[0], completionName) {
		return append([]string{cobra.ShellCompRequestCmd}, args[1:]...)
	}
	return args[1:]
}

// displayName is what help calls the program.
func displayName() string {
	if isPlugin() {
		return "kubectl regent"
	}
	return "regent"
}
