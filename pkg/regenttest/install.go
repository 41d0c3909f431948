package regenttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// install makes an installation of several shards: the others become members of the root shard's, and start, and so
// does the front. It returns when each replica of each shard hears all others. A lone shard is none.
func (s *Server) install(ctx context.Context) error {
	if len(s.Shards) == 1 {
		return nil
	}
	if err := until(ctx, "the root shard knows of itself", func(ctx context.Context) error {
		_, err := s.regent(ctx, append([]string{"shard", "set", s.Name}, s.urls()...)...)
		return err
	}); err != nil {
		return err
	}
	keys := "--pki-directory=" + s.pki()
	if err := all(s.Shards[1:], func(shard *Shard) error {
		membership, err := s.join(ctx, shard.Name, append([]string{"shard", "add", shard.Name, keys}, shard.urls()...))
		if err != nil {
			return err
		}
		return shard.startReplicas(ctx, membership)
	}); err != nil {
		return err
	}
	if err := s.startFront(ctx, keys); err != nil {
		return err
	}
	return all(s.Shards, func(shard *Shard) error {
		return all(shard.Replicas, func(r *Replica) error { return r.hears(ctx, len(s.Shards)-1) })
	})
}

func (s *Server) startFront(ctx context.Context, keys string) error {
	const name = "front"
	membership, err := s.join(ctx, name, []string{"front", "add", name, keys})
	if err != nil {
		return err
	}
	way := newLink("")
	s.links = append(s.links, way)
	s.Front = s.newProcess(name, "secure-port", "front", membership, "--snapshot-file="+filepath.Join(s.directory, name+".snapshot"))
	s.Front.in, s.Front.ready = []*link{way}, s.readyz
	if err := s.Front.serveOnAPort(ctx, way); err != nil {
		return err
	}
	s.frontWay.Store(way)
	return nil
}

// join runs a command that prints a membership, and returns the flag with it.
func (s *Server) join(ctx context.Context, name string, command []string) (flag string, err error) {
	membership, err := s.regent(ctx, command...)
	if err != nil {
		return "", err
	}
	file := filepath.Join(s.directory, name+".membership")
	if err := os.WriteFile(file, membership, 0o600); err != nil {
		return "", fmt.Errorf("cannot write the membership of %s: %w", name, err)
	}
	return "--membership=" + file, nil
}

// urls are the flags that name a shard's replicas, as others reach them.
func (s *Shard) urls() (flags []string) {
	for _, r := range s.Replicas {
		flags = append(flags, "--replica=https://"+r.door.address())
	}
	return flags
}

// hears waits until the replica hears so many other shards.
func (r *Replica) hears(ctx context.Context, shards int) error {
	const metric = "regent_shards_heard"
	return until(ctx, r.name+" hears the other shards", func(ctx context.Context) error {
		said, err := r.server.get(ctx, r.url()+"/metrics?name[]="+metric)
		if err != nil {
			return err
		}
		heard := 0.0
		for line := range strings.Lines(said) {
			if strings.HasPrefix(line, metric) {
				value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
				if err != nil {
					return err
				}
				heard += value
			}
		}
		if heard != float64(shards) {
			return fmt.Errorf("it hears %v of %d", heard, shards)
		}
		return nil
	})
}

// regent runs a command as the installation's administrator, and returns what it prints.
func (s *Server) regent(ctx context.Context, args ...string) ([]byte, error) {
	at := s.Replicas[0].url()
	cmd := exec.CommandContext(ctx, s.program, append(args, "--server="+at)...) //nolint:gosec // the test's program
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(s.directory, "root", "admin.kubeconfig"))
	out, err := cmd.Output()
	if exit := (&exec.ExitError{}); errors.As(err, &exit) {
		return nil, fmt.Errorf("regent %s: %w: %s", strings.Join(args[:2], " "), err, bytes.TrimSpace(exit.Stderr))
	}
	return out, err
}
