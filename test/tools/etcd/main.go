// Command etcd is a real etcd, built from its module so that tests need nothing installed.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
