package clusters

import (
	"fmt"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTheShardsOwnClustersAreOfRange0AndEachOtherOfOneRange(t *testing.T) {
	names := []logicalcluster.Name{Root, SystemAdmin, SystemShards, BoundSchemas}
	own := len(names)
	for n := range 1000 {
		names = append(names, logicalcluster.Name(fmt.Sprintf("c%d", n)))
	}
	for _, n := range []int{1, 2, 8, 64} {
		count := make([]int, n)
		for i, name := range names {
			has := 0
			for k := range n {
				if (Range{Index: k, Of: n}).Has(name) {
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

// The leader of one range of many reads what is its own: else a thousand ranges would read all objects a thousand
// times.
func TestARangeIsReadWithoutMostOfTheOthers(t *testing.T) {
	const all, pageSize = 64_000, 100
	o := newObjects[*metav1.PartialObjectMetadata](nil)
	for n := range all {
		name := logicalcluster.Name(fmt.Sprint("c", n))
		obj := &metav1.PartialObjectMetadata{}
		obj.Annotations = map[string]string{logicalcluster.AnnotationKey: name.String()}
		o.set(Key{Cluster: name, Name: "x"}, obj)
	}
	for _, n := range []int{1, 2, 5, 64, 100, 1000} {
		seen, pages := 0, 0
		for k := range n {
			of := Range{Index: k, Of: n}
			var page []*metav1.PartialObjectMetadata
			for after := (Key{}); ; {
				page, after = o.page(of, after, pageSize)
				seen, pages = seen+len(page), pages+1
				if after == (Key{}) {
					break
				}
			}
		}
		if seen != all {
			t.Errorf("%d ranges see %d objects", n, seen)
		}
		// A page is full, or has passed over 16 times as many. Of a slot that two ranges share each reads all.
		if most := 2*all/pageSize + 3*n; pages > most {
			t.Errorf("%d ranges are read in %d pages, want %d at most", n, pages, most)
		}
	}
}
