package main

import (
	"slices"
	"testing"
)

func TestEachCommitIsFoundWhereItIsNamedFirst(t *testing.T) {
	page := "Regent b5056e5, 123456 writes.\nkcp dac74f595; again b5056e5 and 8246353, host_1a2b3c4d\n"
	want := []commit{{"b5056e5", 1}, {"dac74f595", 2}, {"8246353", 2}}
	if got := commits(page); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
