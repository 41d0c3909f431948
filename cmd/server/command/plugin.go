package command

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
)

// plugin is a name under which kubectl runs this program, and another one under which it completes arguments.
type plugin struct{ name, completion, called string }

// plugins are `kubectl regent`, which has all commands, and `kubectl ws`, which is one of them.
var plugins = map[plugin][]string{
	{"kubectl-regent", "kubectl_complete-regent", "kubectl regent"}: nil,
	{"kubectl-ws", "kubectl_complete-ws", "kubectl"}:                {"ws"},
}

// pluginOf returns which plugin a program is, and how its commands begin.
func pluginOf(program string) (is plugin, command []string, ok bool) {
	for p, command := range plugins {
		if base := filepath.Base(program); base == p.name || base == p.completion {
			return p, command, true
		}
	}
	return plugin{}, nil, false
}

func isPlugin() bool {
	_, _, ok := pluginOf(os.Args[0])
	return ok
}

// asPlugin returns the arguments of a program that may have been started by kubectl.
func asPlugin(args []string) []string {
	is, command, _ := pluginOf(args[0])
	out := slices.Concat(command, args[1:])
	if filepath.Base(args[0]) == is.completion {
		return append([]string{cobra.ShellCompRequestCmd}, out...)
	}
	return out
}

// displayName is what help calls the program.
func displayName() string {
	if is, _, ok := pluginOf(os.Args[0]); ok {
		return is.called
	}
	return "regent"
}
