// Command embedded is the embedded etcd in a process of its own, for the tests of the server: with its data in the
// directory that it is given, until its input ends. It says where it is, and with which keys. It is built without the
// race detector, under which etcd takes most of the CPU of some tests, and of which etcd's own tests and replicas with
// an embedded one have enough.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/regent-project/regent/pkg/server/etcd"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "give it a directory")
		os.Exit(2)
	}
	if err := serve(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(directory string) error {
	server, err := etcd.Start(context.Background(), etcd.Config{Directory: directory})
	if err != nil {
		return err
	}
	defer server.Close()
	way := server.Transport()
	if _, err := fmt.Println(way.ServerList[0], way.TrustedCAFile, way.CertFile, way.KeyFile); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
