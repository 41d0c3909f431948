package etcd

import (
	"context"
	"crypto/tls"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/regent-project/regent/pkg/server/pki"
)

// Any user of the machine can connect to a loopback port. Only who can read the key in the directory gets an answer.
func TestOnlyTheHolderOfTheKeyIsAnswered(t *testing.T) {
	s := start(t, t.TempDir())
	defer s.Close()
	way := s.Transport()
	put(t, s, "/registry/.probe-secret", "s3cret")

	other := start(t, t.TempDir())
	defer other.Close()
	withCert := func(pair tls.Certificate) *tls.Config {
		return &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}} //nolint:gosec // a stranger trusts anybody
	}
	shards := filepath.Join(t.TempDir(), "pki")
	bundle, err := pki.Ensure(shards)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := tls.X509KeyPair(bundle.AdminCertPEM, bundle.AdminKeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	own, err := pki.EnsureMutual(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.Replace(way.ServerList[0], "https:", "http:", 1)
	for name, stranger := range map[string]*clientv3.Client{
		"without TLS":                        clientWith(t, plain, nil),
		"without a certificate":              clientWith(t, way.ServerList[0], &tls.Config{InsecureSkipVerify: true}), //nolint:gosec // as above
		"with a key of the same make":        clientWith(t, way.ServerList[0], withCert(own)),
		"with the shard admin's certificate": clientWith(t, way.ServerList[0], withCert(admin)),
		"with another etcd's key":            clientWith(t, way.ServerList[0], holder(t, other.Transport())),
	} {
		if text := refused(t, stranger); text != "" {
			t.Errorf("%s: it read %q", name, text)
		}
	}
	if got := get(t, s, "/registry/.probe-secret"); got != "s3cret" {
		t.Errorf("the holder reads %q", got)
	}
}

// refused returns what a client reads, and closes it.
func refused(t *testing.T, c *clientv3.Client) string {
	t.Helper()
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	resp, err := c.Get(ctx, "/", clientv3.WithFromKey())
	if err != nil {
		return ""
	}
	return resp.Kvs[0].String()
}

// A stranger who got to the port first, while no etcd ran, learns nothing of what its clients write.
func TestClientsTrustTheirOwnEtcdOnly(t *testing.T) {
	mine, impostor := start(t, t.TempDir()), start(t, t.TempDir())
	defer mine.Close()
	defer impostor.Close()
	c := clientWith(t, impostor.Transport().ServerList[0], holder(t, mine.Transport()))
	if text := refused(t, c); text != "" {
		t.Errorf("it was answered by another: %s", text)
	}
}

func TestNothingButTheClientsPortIsOpen(t *testing.T) {
	s := start(t, t.TempDir())
	defer s.Close()
	if peers, clients := len(s.etcd.Peers), len(s.etcd.Clients); peers+clients > 0 {
		t.Errorf("etcd itself listens: for peers %d times, for clients %d times", peers, clients)
	}
	if host := s.serving.listener.Addr().String(); !strings.HasPrefix(host, "127.0.0.1:") {
		t.Errorf("it listens on %s", host)
	}
}

func TestTheDirectoryIsTheOwnersOnly(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "etcd")
	start(t, directory).Close()
	err := filepath.WalkDir(directory, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %o", name, info.Mode().Perm())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Versions before this one served without TLS. Their data, and clients' keys after a restart, stay good.
func TestAnOlderVersionsDataIsServedOn(t *testing.T) {
	directory := t.TempDir()
	old := embedConfig(t.Context(), Config{Directory: directory}, "", &atomic.Int32{})
	plain := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	old.ListenClientUrls, old.AdvertiseClientUrls = []url.URL{plain}, []url.URL{plain}
	before, err := embed.StartEtcd(old)
	if err != nil {
		t.Fatal(err)
	}
	<-before.Server.ReadyNotify()
	c := clientWith(t, "http://"+before.Clients[0].Addr().String(), nil)
	if _, err := c.Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	before.Close()

	s := start(t, directory)
	first := holder(t, s.Transport())
	s.Close()
	s = start(t, directory)
	defer s.Close()
	c = clientWith(t, s.Transport().ServerList[0], first)
	defer func() { _ = c.Close() }()
	if resp, err := c.Get(t.Context(), "k"); err != nil || len(resp.Kvs) != 1 || string(resp.Kvs[0].Value) != "v" {
		t.Errorf("k is %v, %v", resp, err)
	}
}

func TestADamagedKeyIsNamedWithAdvice(t *testing.T) {
	directory := t.TempDir()
	start(t, directory).Close()
	file := filepath.Join(keys(directory), pki.MutualKeyFile)
	if err := os.WriteFile(file, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Start(t.Context(), Config{Directory: directory}); err == nil {
		s.Close()
		t.Error("it started")
	} else if !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "remove both") {
		t.Error(err)
	}
}

// A client without a key may connect all the same, until the handshake's time is up. Not so often that the process runs
// out of file descriptors, for the API server is in it.
func TestStrangersDoNotTakeAllFileDescriptors(t *testing.T) {
	const room = 32
	s, err := Start(t.Context(), Config{Directory: t.TempDir(), connections: room})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := client(t, s)
	defer func() { _ = c.Close() }()
	read := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := c.Get(ctx, "k"); err != nil {
			t.Error(err)
		}
	}
	read()
	descriptors := func() int {
		t.Helper()
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skipf("the system does not tell: %v", err)
		}
		return len(open)
	}
	before := descriptors()
	const strangers = 4 * room
	for range strangers {
		conn, err := net.Dial("tcp", s.serving.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
	}
	accepted := func() int { return descriptors() - before - strangers }
	for deadline := time.Now().Add(5 * time.Second); accepted() < room-1 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond) // more would be accepted at once
	if n := accepted(); n > room || n < room/2 {
		t.Errorf("%d of %d strangers were accepted, want at most %d, and nearly as many", n, strangers, room)
	}
	read()
}

func TestTheRoomForConnectionsIsByTheDescriptors(t *testing.T) {
	for of, want := range map[uint64]int{0: 128, 256: 128, 1024: 128, 4096: 512, 1 << 20: 1 << 17, ^uint64(0): 1 << 20} {
		if got := roomFor(of); got != want {
			t.Errorf("%d descriptors: room for %d connections, want %d", of, got, want)
		}
	}
}
