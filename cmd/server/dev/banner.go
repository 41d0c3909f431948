package dev

import (
	"fmt"
	"strings"
)

// banner returns what the user sees once the shard is up: the replicas, and commands that can be pasted as they are.
func (s *shard) banner(kubectl string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }

	p("")
	p("Shard %s is up at %s", s.name, s.url)
	p("")
	for _, c := range s.children {
		leads := ""
		if c == s.leader {
			leads = fmt.Sprintf("   leads, epoch %d", s.epoch)
		}
		p("  %-12s pid %-8d %s%s", c.name, c.running(), c.url, leads)
	}
	p("")
	p("In another terminal:")
	p("")
	p("  export KUBECONFIG=%s", quoted(s.kubeconfig))
	if kubectl != "kubectl" {
		p("  alias kubectl=%s", quoted(kubectl))
	}
	p("  echo '%s' | kubectl create -f -", workspace)
	p("  kubectl get workspaces")
	p("")
	p("Who leads:")
	p("")
	p("  kubectl --context system:admin get lease -n kube-system regent-controllers")
	p("")
	if pid := s.leader.running(); pid != 0 { // 0: the leader has ended since
		p("Kill the leader, and go on as if nothing had happened; then press Enter here to start it again:")
		p("")
		p("  kill -9 %d", pid)
		p("")
	}
	return b.String()
}

// workspace is the smallest valid Workspace.
const workspace = `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"demo"}}`
