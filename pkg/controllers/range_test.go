package controllers

import (
	"fmt"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/election/ranges"
)

func TestTheShardsOwnClustersAreOfRange0AndEachOtherOfOneRange(t *testing.T) {
	names := []logicalcluster.Name{clusters.Root, clusters.SystemAdmin, clusters.SystemShards, clusters.BoundSchemas}
	own := len(names)
	for n := range 1000 {
		names = append(names, logicalcluster.Name(fmt.Sprintf("c%d", n)))
	}
	for _, n := range []int{1, 2, 8, 64} {
		count := make([]int, n)
		for i, name := range names {
			has := 0
			for k := range n {
				if ClustersOf(ranges.Range{Index: k, Of: n}).Has(name) {
					has++
					count[k]++
					if RangeOf(name, n) != k || i < own && k != 0 {
						t.Errorf("%s is of range %d of %d", name, k, n)
					}
				}
			}
			if has != 1 {
				t.Errorf("%s is of %d ranges of %d", name, has, n)
			}
		}
		for k, got := range count {
			if got < 1000/n/4 {
				t.Errorf("range %d of %d has %d clusters", k, n, got)
			}
		}
	}
}
