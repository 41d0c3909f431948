package view

import (
	"io"

	"github.com/kcp-dev/logicalcluster/v3"

	"github.com/regent-project/regent/cmd/server/workspaces"
)

// Workspaces writes the workspaces in one of them.
func Workspaces(w io.Writer, look Look, in logicalcluster.Path, list []workspaces.Listed) error {
	p := &page{Look: look}
	if len(list) == 0 {
		p.line("There is no workspace in %s. Make one: regent ws create <name>", in)
		return p.flush(w)
	}
	head := []string{"NAME", "PHASE", "SHARD", "AGE"}
	if look.wide() {
		head = append(head, "CLUSTER", "URL")
	}
	rows := [][]string{head}
	for _, one := range list {
		row := []string{one.Name, one.Phase, orDash(one.Shard), span(look.Now.Sub(one.CreationTimestamp.Time))}
		if look.wide() {
			row = append(row, orDash(one.Spec.Cluster), orDash(one.Spec.URL))
		}
		rows = append(rows, row)
	}
	p.table("", rows)
	return p.flush(w)
}

// WorkspaceTree writes a workspace with all those below it: on which shard each is, unless it is ready on that of the
// one above, and why it is not known what is in it.
func WorkspaceTree(w io.Writer, look Look, root *workspaces.Node) error {
	p := &page{Look: look}
	for _, line := range root.Lines(func(n *workspaces.Node) string { return look.aboutNode(n) }) {
		p.line("%s", line)
	}
	return p.flush(w)
}

func (l Look) aboutNode(n *workspaces.Node) string {
	text := ""
	if n.Workspace != nil {
		if phase := n.Workspace.Phase; phase != "Ready" {
			text += "  " + l.warning(phase)
		}
		if !n.Workspace.IsOnLoneShard() {
			text += "  (shard " + n.Workspace.Shard + ")"
		}
	}
	if n.Fault != nil {
		text += "  " + l.bad(n.Fault.Error())
	}
	return text
}
