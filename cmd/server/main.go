// Command regent is an API server for logical clusters whose controllers run under exactly one leader.
package main

import (
	"os"
)

func main() { os.Exit(run(asPlugin(os.Args), os.Stdout, os.Stderr)) }
