package deploy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

const nobody = 65532

// process runs what is in an unpacked image, as nobody if the test is root.
type process struct{ root string }

// outside runs a program of the image in this machine's file system. Paths in its flags lead into the image.
func (p *process) outside(ctx context.Context, args ...string) *exec.Cmd {
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "=/", "="+p.root+"/")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(p.root, "regent"), args...)
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return cmd
}

// inside runs a program of the image with no other file system than the image's, which only root can do.
func (p *process) inside(ctx context.Context, args ...string) *exec.Cmd {
	if os.Getuid() != 0 {
		return p.outside(ctx, args...)
	}
	cmd := exec.CommandContext(ctx, "/regent", args...)
	cmd.Env, cmd.Dir = []string{"HOME=/var/lib/regent"}, "/var/lib/regent"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: p.root, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

func (p *process) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := p.inside(t.Context(), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("regent %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// mount makes a Secret's files as Kubernetes does for a pod with an fsGroup: root's, and readable by the group.
func (p *process) mount(t *testing.T, path string, files map[string][]byte) {
	t.Helper()
	directory := filepath.Join(p.root, path)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		file := filepath.Join(directory, name)
		err := os.WriteFile(file, content, 0o440)
		if os.Getuid() == 0 {
			err = errors.Join(err, os.Chown(file, 0, nobody))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// given are the ports that freePort has returned.
var given = map[int]bool{}

// freePort returns a port that nobody listens on, below those that systems use for outgoing connections: one of these
// may be an outgoing connection's before the program listens on it.
func freePort(t *testing.T) int {
	t.Helper()
	const lowest, highest = 20_000, 32_000
	for range highest - lowest {
		port := lowest + rand.IntN(highest-lowest)
		if given[port] {
			continue
		}
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			given[port] = true
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// startEtcd runs an etcd until the test ends, and returns its URL.
func startEtcd(t *testing.T) string {
	t.Helper()
	program, err := filepath.Abs(root + "/bin/etcd")
	if err != nil {
		t.Fatal(err)
	}
	directories(t)
	clients, peers := fmt.Sprintf("http://127.0.0.1:%d", freePort(t)), fmt.Sprintf("http://127.0.0.1:%d", freePort(t))
	etcd := exec.Command(program, "--data-dir="+t.TempDir(), "--listen-client-urls="+clients, "--advertise-client-urls="+clients,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=default="+peers, "--log-level=error")
	if err := etcd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Process.Kill(); _ = etcd.Wait() })
	return clients
}

// onePod is a release of one shard whose authority the chart has made, and a machine on which its pod runs.
type onePod struct {
	*process
	port int
	keys map[string][]byte // the Secret's
	pod  corev1.PodSpec
}

func install(t *testing.T) *onePod {
	t.Helper()
	port := freePort(t)
	all := objects(t, map[string]any{
		"image": map[string]any{"repository": "regent", "tag": "v1"}, "baseURL": fmt.Sprintf("https://127.0.0.1:%d", port),
		"shard": map[string]any{
			"port": port, "probePort": freePort(t), "shutdownDelaySeconds": 0,
			"etcd": map[string]any{"servers": []any{startEtcd(t)}}, "pki": map[string]any{"create": true},
		},
	})
	machine := &process{root: unpackImage(t, readImage(t, builtImage(t)))}
	return &onePod{machine, port, of[*corev1.Secret](all)[0].Data, of[*appsv1.StatefulSet](all)[0].Spec.Template.Spec}
}

// start makes a new pod, with the keys that are in the Secret now, and returns when it is ready. stop does what
// Kubernetes does to end it.
func (i *onePod) start(t *testing.T) (stop func()) {
	t.Helper()
	// of the pod before, whose volumes are gone
	for _, left := range []string{"secrets/pki", "var/lib/regent/pki"} {
		if err := os.RemoveAll(filepath.Join(i.root, left)); err != nil {
			t.Fatal(err)
		}
	}
	i.mount(t, "/secrets/pki", i.keys)
	for _, c := range i.pod.InitContainers {
		i.run(t, slices.Clone(c.Args)...)
	}
	args := slices.Clone(i.pod.Containers[0].Args)
	for n := range args {
		args[n] = strings.NewReplacer("$(POD_IP)", "127.0.0.1", "$(POD_NAME)", "shard-0", "$(POD_NAMESPACE)", "regent", "=0.0.0.0", "=127.0.0.1").Replace(args[n])
	}
	var log bytes.Buffer
	// A container has /proc, too. The context of the test would end it before stop can ask it to.
	replica := i.outside(context.Background(), args...)
	replica.Stdout, replica.Stderr = &log, &log
	if err := replica.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- replica.Wait() }()
	if err := ready(t.Context(), i.port, i.keys["ca.crt"], ended); err != nil {
		_ = replica.Process.Kill()
		t.Fatalf("%v\n%s", err, tail(&log))
	}
	stop = sync.OnceFunc(func() {
		if err := errors.Join(replica.Process.Signal(syscall.SIGTERM), <-ended); err != nil {
			t.Errorf("it stopped with %v\n%s", err, tail(&log))
		}
	})
	t.Cleanup(stop) // also of a test that fails before it stops it
	return stop
}

// What the chart renders starts, from the image and with the keys that the chart makes, and stops when Kubernetes asks
// it to.
func TestAPodOfTheChartServes(t *testing.T) {
	install(t).start(t)()
}

func tail(log *bytes.Buffer) string {
	return log.String()[max(0, log.Len()-4000):]
}

// ready waits until the replica says that it is, by a certificate for its names.
func ready(ctx context.Context, port int, ca []byte, ended chan error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "shard-0.shard-replicas.regent.svc"}}}
	defer client.CloseIdleConnections()
	var last error
	for {
		answer, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/readyz", port))
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(answer.Status)
		}
		last = err
		select {
		case err := <-ended:
			ended <- err
			return fmt.Errorf("it ended: %v", err)
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", last)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
