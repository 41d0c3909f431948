// Command etcdbefore is a real etcd of the minor version before that which Regent embeds: what a roll of etcd begins
// with (make upgrade).
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
