package dev

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/regent-project/regent/pkg/server/status"
)

// shard is one shard's replicas.
type shard struct {
	name     string
	children []*child
	out      *output

	mu     sync.Mutex
	leader *child
	epoch  int64
	since  time.Time
}

// newShard returns a shard. It starts no replica. more are further flags for each.
func (s *system) newShard(index int, etcd storagebackend.TransportConfig, more ...string) *shard {
	out := &shard{name: shardName(index), out: s.out}
	for i := range s.cfg.Replicas {
		name, port := fmt.Sprintf("replica-%d", i), s.cfg.replica(index, i)
		if s.cfg.Shards > 1 {
			name = out.name + "-" + name
		}
		args := append([]string{
			"start",
			"--root-directory=" + s.cfg.shardDirectory(index),
			"--shard-name=" + out.name,
			"--replica-name=" + name,
			"--secure-port=" + fmt.Sprint(port),
			"--shard-base-url=" + s.url,
			"--etcd-servers=" + strings.Join(etcd.ServerList, ","),
			"--etcd-cafile=" + etcd.TrustedCAFile,
			"--etcd-certfile=" + etcd.CertFile,
			"--etcd-keyfile=" + etcd.KeyFile,
			"--enable-leader-election",
			"--shutdown-delay-duration=" + balancerNotices.String(),
		}, more...)
		c := s.newChild(name, url(port), append(args, s.cfg.Start...)...)
		c.program = s.cfg.Program
		out.children = append(out.children, c)
	}
	return out
}

// urls returns the URLs of the replicas.
func (s *shard) urls() (urls []string) {
	for _, c := range s.children {
		urls = append(urls, c.url)
	}
	return urls
}

// leads records that a replica leads, says so if that is news, and reports then whether another term has gone before. A
// term that began earlier than the one that is recorded is no news: a leader that was paused says for a moment that it
// still leads.
func (s *shard) leads(c *child, e status.Election) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !e.Since.After(s.since) {
		return false
	}
	succeeds := s.leader != nil
	s.leader, s.epoch, s.since = c, e.Epoch, e.Since
	text := fmt.Sprintf("%s leads shard %s, epoch %d", c.name, s.name, e.Epoch)
	if pid := c.running(); pid != 0 { // 0: the process has ended since
		text += fmt.Sprintf(". To kill it: kill -9 %d", pid)
	}
	s.out.say("%s", text)
	return succeeds
}

// leading returns who leads, or nil, and in which epoch.
func (s *shard) leading() (*child, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leader, s.epoch
}
