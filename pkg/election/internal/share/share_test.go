package share

import (
	"fmt"
	"testing"
)

// What a replica leaves is spread over all others.
func TestTheRangesOfWhoGoesAreSpread(t *testing.T) {
	replicas := map[string]int{"a": 1, "b": 1, "c": 1, "d": 1}
	before := Assign(make([]string, 64), replicas)
	delete(replicas, "a")
	gets := map[string]int{}
	for k, replica := range Assign(before, replicas) {
		if before[k] == "a" {
			gets[replica]++
		}
	}
	for replica := range replicas {
		if gets[replica] < 5 || gets[replica] > 6 {
			t.Errorf("%s gets %d of the 16 ranges that a has left: %v", replica, gets[replica], gets)
		}
	}
}

// Two who do not see the same others agree about most ranges all the same.
func TestWhoSeesOneMoreDecidesMostlyTheSame(t *testing.T) {
	free := make([]string, 64)
	four := Assign(free, map[string]int{"a": 1, "b": 1, "c": 1, "d": 1})
	three := Assign(free, map[string]int{"a": 1, "b": 1, "c": 1})
	same, of := 0, 0
	for k, replica := range four {
		if replica != "d" {
			of++
			if three[k] == replica {
				same++
			}
		}
	}
	if same < of*3/4 {
		t.Errorf("they agree about %d of %d ranges", same, of)
	}
}

func TestNobodyIsAssignedWhereNobodyIs(t *testing.T) {
	if assigned := Assign([]string{"a", ""}, nil); assigned != nil {
		t.Errorf("assigned %v", assigned)
	}
}

// Keys are spread over the ranges, and stay where they are: other processes and versions rely on it.
func TestKeysAreSpreadOverTheRanges(t *testing.T) {
	const n, each = 64, 1000
	count := make([]int, n)
	for i := range n * each {
		count[Of(fmt.Sprintf("%016x", i), n)]++
	}
	for k, got := range count {
		if got < each*8/10 || got > each*12/10 {
			t.Errorf("range %d has %d keys, want about %d", k, got, each)
		}
	}
	for _, test := range []struct {
		key     string
		n, want int
	}{{"root", 1, 0}, {"root", 64, 19}, {"2x1abcdefghijklm", 1, 0}, {"2x1abcdefghijklm", 64, 10}, {"2x1abcdefghijklm", 1000, 159}} {
		if got := Of(test.key, test.n); got != test.want {
			t.Errorf("%q is in range %d of %d, want %d", test.key, got, test.n, test.want)
		}
	}
}

// Ranges are cut in one order, whatever their number: what is kept by one number of parts is read in another.
func TestRangesDivideOneOrder(t *testing.T) {
	for i := range 1000 {
		key := fmt.Sprint("c", i)
		for _, n := range []int{1, 2, 3, 64, 1000} {
			if k := Of(key, n); Of(key, 2*n)/2 != k || Of(key, 10*n)/10 != k {
				t.Errorf("%q is in range %d of %d, and %d of %d", key, k, n, Of(key, 2*n), 2*n)
			}
		}
	}
}
