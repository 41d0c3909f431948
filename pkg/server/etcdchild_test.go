package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/regent-project/regent/pkg/server/etcd"
)

// etcdDirectory, if set in the environment, makes this binary an etcd with its data there, until its input ends.
const etcdDirectory = "REGENT_TEST_ETCD_DIRECTORY"

func beEtcd(directory string) error {
	server, err := etcd.Start(context.Background(), etcd.Config{Directory: directory})
	if err != nil {
		return err
	}
	defer server.Close()
	fmt.Println(server.Endpoint())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// startEtcd starts an etcd in a process of its own, so that what it remembers is not taken for this one's.
func startEtcd(t testing.TB) (endpoint string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), etcdDirectory+"="+t.TempDir())
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := child.Wait(); err != nil {
			t.Errorf("etcd ended with %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("etcd has not said where it is: %v", err)
	}
	return strings.TrimSpace(line)
}
