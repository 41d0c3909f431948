package regenttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Shard is an etcd and the replicas on it.
type Shard struct {
	// Name is "root" of the first one, and of others "shard-1" and so on.
	Name string
	// Etcd is the shard's. It keeps its data when it is killed and started again.
	Etcd *Process
	// Replicas are all of the shard, whether they run or not.
	Replicas []*Replica

	server    *Server
	directory string
}

// Replica is one of the processes of a shard that serve, and of which one leads.
type Replica struct {
	*Process

	server *Server
	way    *link // to it
	door   *door // before it
	etcd   *door // of its etcd
}

// Config is as the server's, through this replica alone: when it is down nobody else answers.
func (r *Replica) Config(cluster string) *rest.Config {
	return r.server.config("https://"+r.door.address(), cluster)
}

func (r *Replica) url() string { return "https://" + address(r.port) }

// Leader waits until exactly one replica leads of those that are neither ended nor paused nor cut off, and returns it.
func (s *Shard) Leader(t testing.TB) *Replica {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	leader, err := s.leader(ctx)
	must(t, err)
	return leader
}

func (s *Shard) leader(ctx context.Context) (leader *Replica, err error) {
	err = until(ctx, "one replica leads shard "+s.Name, func(ctx context.Context) error {
		leaders := 0
		for _, r := range s.Replicas {
			if !r.answers() {
				continue
			}
			switch leads, err := r.leads(ctx); {
			case err != nil:
				return err
			case leads:
				leader = r
				leaders++
			}
		}
		if leaders != 1 {
			return fmt.Errorf("%d lead", leaders)
		}
		return nil
	})
	return leader, err
}

// leads reports whether it says that it leads.
func (r *Replica) leads(ctx context.Context) (bool, error) {
	const metric = "leader_election_master_status"
	said, err := r.server.get(ctx, r.url()+"/metrics?"+url.Values{"name[]": {metric}}.Encode())
	return strings.Contains(said, metric+`{name="regent-controllers"} 1`), err
}

// newShard makes a shard, with all doors and links, and starts nothing. Its replicas' URLs are known from now on.
func (s *Server) newShard(name string) (*Shard, error) {
	shard := &Shard{Name: name, server: s, directory: filepath.Join(s.directory, name)}
	at := filepath.Join(shard.directory, "etcd")
	shard.Etcd = s.newProcess(name+"-etcd", "client-port", "etcd", "--directory="+at)
	if err := etcdKey(filepath.Join(at, "pki")); err != nil {
		return nil, fmt.Errorf("cannot make the key of an etcd: %w", err)
	}
	shard.Etcd.said, shard.Etcd.ready = filepath.Join(at, "lock"), etcdReady
	for n := range s.options.replicas {
		r := &Replica{server: s, way: newLink("")}
		r.Process = s.newProcess(fmt.Sprintf("%s-replica-%d", name, n), "secure-port")
		toEtcd := newLink("")
		r.in, r.out = []*link{r.way}, []*link{toEtcd}
		shard.Etcd.in = append(shard.Etcd.in, toEtcd)
		s.links = append(s.links, r.way, toEtcd)
		var err error
		if r.door, err = s.openDoor(always(r.way)); err != nil {
			return nil, err
		}
		if r.etcd, err = s.openDoor(always(toEtcd)); err != nil {
			return nil, err
		}
		key := filepath.Join(at, "pki", "mutual")
		r.args = append([]string{
			"start", "--root-directory=" + shard.directory, "--shard-name=" + name, "--replica-name=" + r.name, "--enable-leader-election",
			"--shard-base-url=" + s.url(), "--etcd-servers=https://" + r.etcd.address(), "--etcd-cafile=" + key + ".crt", "--etcd-certfile=" + key + ".crt",
			"--etcd-keyfile=" + key + ".key",
		}, s.options.flags...)
		r.ready = s.readyz
		shard.Replicas = append(shard.Replicas, r)
	}
	return shard, nil
}

// etcdReady reads where the etcd listens from the file that it writes when it serves, and keeps that port.
func etcdReady(_ context.Context, p *Process) error {
	said, err := os.ReadFile(p.said)
	if err != nil {
		return err
	}
	at, err := url.Parse(strings.TrimSpace(string(said)))
	if err != nil || at.Port() == "" {
		return errors.New("it has not said yet where it listens")
	}
	if _, err := fmt.Sscan(at.Port(), &p.port); err != nil {
		return err
	}
	for _, l := range p.in {
		l.setTarget(at.Host)
	}
	return nil
}

// startReplicas starts the shard's replicas, with further flags, and returns when all serve.
func (s *Shard) startReplicas(ctx context.Context, more ...string) error {
	return all(s.Replicas, func(r *Replica) error {
		r.args = append(r.args, more...)
		return r.serveOnAPort(ctx, r.way)
	})
}

// serveOnAPort starts it on a port that is free, to which a link leads then, and returns when it serves.
func (p *Process) serveOnAPort(ctx context.Context, way *link) error {
	for {
		port, err := freePort()
		if err != nil {
			return err
		}
		p.port = port
		way.setTarget(address(port))
		if err := p.serve(ctx); !errors.Is(err, errPortTaken) {
			return err
		}
	}
}

// readyz asks a replica or a front whether it is ready.
func (s *Server) readyz(ctx context.Context, p *Process) error {
	_, err := s.get(ctx, "https://"+address(p.port)+"/readyz")
	return err
}

// answerPatience is how long one answer may take, before it is asked for again.
const answerPatience = 10 * time.Second

// get reads a URL as the administrator.
func (s *Server) get(ctx context.Context, url string) (string, error) {
	client, err := s.admin()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerPatience, fmt.Errorf("no answer from %s within %v", url, answerPatience))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s: %s", url, resp.Status, lastLines(string(body), 8))
	}
	return string(body), nil
}
