package workspaces

import (
	"context"
	"errors"

	"github.com/kcp-dev/logicalcluster/v3"
	"golang.org/x/sync/errgroup"
)

// atOnce is how many workspaces are asked at the same time.
const atOnce = 8

// Node is a workspace, with those in it.
type Node struct {
	Name string
	// Workspace is nil for the one with which the tree begins.
	Workspace *Listed
	Nodes     []*Node
	// Fault is why it is not known what is in it.
	Fault error
}

// ErrNotAsked is the Fault of a workspace if the context has ended before it was asked.
var ErrNotAsked = errors.New("not asked")

// Tree returns a workspace with all those below it. One that cannot be asked is there with a fault, and the others are
// complete.
func (c *Client) Tree(ctx context.Context, path logicalcluster.Path) *Node {
	root := &Node{Name: path.String()}
	level := map[*Node]logicalcluster.Path{root: path}
	for len(level) > 0 {
		var asking errgroup.Group
		asking.SetLimit(atOnce)
		for node, path := range level {
			asking.Go(func() error {
				c.ask(ctx, node, path)
				return nil
			})
		}
		_ = asking.Wait() // faults are in the nodes
		next := map[*Node]logicalcluster.Path{}
		for node, path := range level {
			for _, below := range node.Nodes {
				next[below] = path.Join(below.Name)
			}
		}
		level = next
	}
	return root
}

// ask finds out what is in a workspace, unless ctx has ended.
func (c *Client) ask(ctx context.Context, node *Node, path logicalcluster.Path) {
	if ctx.Err() != nil {
		node.Fault = ErrNotAsked
		return
	}
	node.add(c.List(ctx, path))
}

func (n *Node) add(found []Listed, fault error) {
	n.Fault = fault
	for i := range found {
		n.Nodes = append(n.Nodes, &Node{Name: found[i].Name, Workspace: &found[i]})
	}
}

// Lines returns the tree as lines of text. label says what stands behind a name.
func (n *Node) Lines(label func(*Node) string) []string {
	lines := []string{n.Name + label(n)}
	for i, below := range n.Nodes {
		branch, stem := "├── ", "│   "
		if i == len(n.Nodes)-1 {
			branch, stem = "└── ", "    "
		}
		for j, line := range below.Lines(label) {
			if j == 0 {
				lines = append(lines, branch+line)
			} else {
				lines = append(lines, stem+line)
			}
		}
	}
	return lines
}
