// Command kubernetes is a real kube-apiserver, built from its module so that the benchmarks of package leader on plain
// Kubernetes need nothing installed.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(cli.Run(app.NewAPIServerCommand())) }
