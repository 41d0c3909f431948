package dev

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// banner returns what the user sees once everything is up: the processes, and commands that can be pasted as they are.
func (s *system) banner(kubectl string) string {
	b := &text{}
	b.line("")
	if s.isInstallation() {
		b.line("%d shards are one installation, at %s", len(s.present()), s.url)
	} else {
		b.line("Shard %s is up at %s", s.shards[0].name, s.url)
	}
	b.line("")
	s.listChildren(b)
	if n := s.shardsBefore(); n > len(s.shards) {
		b.line("This directory has %d shards, of which %d started: workspaces on the others do not answer. For all: `make run ARGS=--shards=%d`.", n, len(s.shards), n)
		b.line("")
	}
	b.line("Their logs are in %s", quoted(s.logs()))
	if !s.cfg.Verbose {
		b.line("Here you see only what happens to them. To see it all: `make run ARGS=-v`, or `regent dev -v`.")
	}
	b.line("")
	b.line("In another terminal:")
	b.line("")
	b.line("  export KUBECONFIG=%s", quoted(s.kubeconfig))
	b.alias("kubectl", kubectl)
	b.alias("regent", beside("regent"))
	if s.isInstallation() {
		s.tryInstallation(b)
	} else {
		s.tryShard(b)
	}
	return b.String()
}

// text is written line by line.
type text struct{ strings.Builder }

func (b *text) line(format string, args ...any) { _, _ = fmt.Fprintf(b, format+"\n", args...) }

// shardsBefore returns how many shards the directory has, because they were started in it once.
func (s *system) shardsBefore() int {
	n := 1
	for ; ; n++ {
		if _, err := os.Stat(s.cfg.shardDirectory(n)); err != nil {
			return n
		}
	}
}

// alias lets people type the name of what is not on their PATH.
func (b *text) alias(name, program string) {
	if program != name {
		b.line("  alias %s=%s", name, quoted(program))
	}
}

func (s *system) listChildren(b *text) {
	width := len("replica-00")
	for _, c := range s.children() {
		width = max(width, len(c.name))
	}
	list := func(c *child, more string) {
		b.line("  %-*s   pid %-8d %s%s", width, c.name, c.running(), c.url, more)
	}
	for _, c := range s.fronts {
		list(c, "")
	}
	for _, shard := range s.present() {
		leader, epoch := shard.leading()
		for _, c := range shard.children {
			if c == leader {
				list(c, fmt.Sprintf("   leads, epoch %d", epoch))
			} else {
				list(c, "")
			}
		}
	}
	b.line("")
}

// tryShard says what to try with a lone shard.
func (s *system) tryShard(b *text) {
	b.line("  regent ws create demo")
	b.line("  kubectl get workspaces")
	b.line("")
	b.line("See who leads and what is wrong, in the terminal and as a page in the browser:")
	b.line("")
	b.line("  regent status")
	b.line("  regent ui")
	b.line("")
	leader, _ := s.shards[0].leading()
	if pid := leader.running(); pid != 0 { // 0: the leader has ended since
		b.line("Kill the leader, and keep working as if nothing had happened:")
		b.line("")
		b.line("  kill -9 %d", pid)
		b.line("")
		b.line("%s to start it again.", howToStart(s.deaf))
		b.line("")
	}
}

// tryInstallation says what to try with several shards.
func (s *system) tryInstallation(b *text) {
	shards := s.present()
	last, second := shards[len(shards)-1], shards[min(1, len(shards)-1)]
	b.line("  for n in 1 2 3 4 5 6; do regent ws create demo-$n; done")
	b.line("  kubectl get workspaces")
	b.line("  regent shard list")
	b.line("")
	b.line("See who leads %s (and so on, for each shard):", last.name)
	b.line("")
	b.line("  kubectl --context %s/system:admin get lease -n kube-system regent-controllers", last.name)
	b.line("")
	b.line("Kill all of %s. Requests for its workspaces get a 503 that names it, and kubectl retries for 10 s. All others work, and new ones are on other shards:", last.name)
	b.line("")
	b.line("  on() { kubectl get workspaces --selector=regent.dev/shard=$1 --output=jsonpath='{.items[0].spec.URL}'; }")
	b.line("  url=$(on %s)", last.name)
	b.line("  kubectl --server $url create configmap written")
	b.line("  kubectl --server $url get configmaps")
	b.line("  kill -9%s", pids(last.children))
	b.line("  kubectl --server $url get configmaps")
	b.line("  kubectl --server $(on %s) create configmap written-meanwhile", shards[max(0, len(shards)-2)].name)
	b.line("")
	b.line("%s to start it again. Then kill shard root and a front. Other shards keep working:", howToStart(s.deaf))
	b.line("")
	b.line("  url=$(on %s)", second.name)
	b.line("  kill -9%s%s", pids(s.shards[0].children), pids(s.fronts[:1]))
	b.line("  kubectl --server $url create configmap written-without-root")
	b.line(`  echo '{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"below"}}' | kubectl --server $url create -f -`)
	b.line("  kubectl --server $url get workspaces")
	b.line("")
}

// pids returns the children's pids, each after a space.
func pids(children []*child) string {
	var b strings.Builder
	for _, c := range children {
		if pid := c.running(); pid != 0 {
			b.WriteString(" " + strconv.Itoa(pid))
		}
	}
	return b.String()
}
