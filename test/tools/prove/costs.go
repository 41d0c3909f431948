package main

import (
	"cmp"
	"slices"
	"time"
)

// A cost is what a unit took when it was measured (docs/reference/tests.md).
type cost struct {
	Wall, CPU time.Duration
}

// need is how many CPUs a unit takes on average.
func (c cost) need() float64 {
	if c.Wall <= 0 {
		return 1
	}
	return min(max(c.CPU.Seconds()/c.Wall.Seconds(), 0.1), cores())
}

// costs has the costs of packages, by their names, and of tests, by those of the package and the test with a space
// between.
type costs map[string]cost

// of returns a unit's cost. A unit that was never measured is taken for one that computes for a while.
func (c costs) of(u unit) cost {
	known, ok := c[u.name]
	if !ok {
		return cost{Wall: 10 * time.Second, CPU: 10 * time.Second}
	}
	if u.shard == "" {
		return known
	}
	var part cost
	for _, test := range u.tests {
		t := c.ofTest(u, test)
		part.Wall, part.CPU = part.Wall+t.Wall, part.CPU+t.CPU
	}
	return part
}

// ofTest returns a test's cost: one that is not told of has taken less than a second.
func (c costs) ofTest(u unit, test string) cost {
	if known, ok := c[u.name+" "+test]; ok {
		return known
	}
	return cost{Wall: 300 * time.Millisecond, CPU: 100 * time.Millisecond}
}

// dearestFirst sorts units by how long they take, and by their names.
func (c costs) dearestFirst(units []unit) []unit {
	return slices.SortedFunc(slices.Values(units), func(a, b unit) int {
		return cmp.Or(cmp.Compare(c.of(b).Wall, c.of(a).Wall), cmp.Compare(a.name, b.name))
	})
}
