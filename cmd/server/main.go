// Command server is an API server for logical clusters whose controllers run under exactly one leader. go install of
// cmd/regent yields the same under its own name.
package main

import (
	"os"

	"github.com/regent-project/regent/cmd/server/command"
)

func main() { os.Exit(command.Main()) }
