// Command regent is an API server for logical clusters whose controllers run under exactly one leader. It is cmd/server
// under the name that go install gives it.
package main

import (
	"os"

	"github.com/regent-project/regent/cmd/server/command"
)

func main() { os.Exit(command.Main()) }
