package ranges

import (
	"fmt"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestTheNumberChangesWhenAllWantTheSameOther(t *testing.T) {
	steady := number{Ranges: 4}
	marked := number{Ranges: 4, Next: 8, Changer: "b"}
	for name, test := range map[string]struct {
		now   number
		wants map[string]int
		want  stage // of b
		up    bool  // a change is given up
	}{
		"all want what there is":            {steady, map[string]int{"a": 4, "b": 4}, stage{do: work, of: 4}, false},
		"one wants another":                 {steady, map[string]int{"a": 4, "b": 8}, stage{do: work, of: 4}, false},
		"each wants another other":          {steady, map[string]int{"a": 16, "b": 8}, stage{do: work, of: 4}, false},
		"all want the same other":           {steady, map[string]int{"a": 8, "b": 8}, stage{do: yield, of: 4, next: 8}, false},
		"the first of them changes it":      {steady, map[string]int{"c": 8, "b": 8}, stage{do: gather, of: 4, next: 8}, false},
		"it is alone":                       {steady, map[string]int{"b": 1}, stage{do: gather, of: 4, next: 1}, false},
		"it changes":                        {marked, map[string]int{"c": 8, "b": 8}, stage{do: gather, of: 4, next: 8}, false},
		"it changes, and somebody comes":    {marked, map[string]int{"c": 4, "b": 8}, stage{do: work, of: 4}, true},
		"it changes to what nobody wants":   {marked, map[string]int{"c": 4, "b": 4}, stage{do: work, of: 4}, true},
		"one range, and one wants several":  {number{Ranges: 1}, map[string]int{"b": 8, "c": 1}, stage{do: work, of: 1}, false},
		"one range, and all want several":   {number{Ranges: 1}, map[string]int{"b": 8, "c": 8}, stage{do: gather, of: 1, next: 8}, false},
		"another changer has left its mark": {number{Ranges: 4, Next: 8, Changer: "a"}, map[string]int{"c": 8, "b": 8}, stage{do: gather, of: 4, next: 8}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := stageOf(test.now, test.wants, "b")
			if got != test.want || got.isGivenUp(test.now) != test.up {
				t.Errorf("got %+v, given up: %v", got, got.isGivenUp(test.now))
			}
			if (got.waits() == "") != (got.do == work) {
				t.Errorf("people are told that it waits: %q", got.waits())
			}
		})
	}
}

// Whatever has been written is read again; a Lease that an elector holds, and none, mean one range.
func TestTheNumberIsThatOfTheLease(t *testing.T) {
	held := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "group", ResourceVersion: "7", Labels: map[string]string{"a": "b"}}}
	held.Spec.HolderIdentity, held.Spec.LeaseTransitions = ptr.To("somebody"), ptr.To[int32](3)
	of := held
	for i, n := range []number{{Ranges: 16}, {Ranges: 16, Next: 2, Changer: "x"}, {Ranges: 2}, {Ranges: 2, Next: 1, Changer: "x"}, {Ranges: 1}, {Ranges: 1024}} {
		of = n.writeTo(of)
		if got, err := numberOn(of); err != nil || got != n {
			t.Errorf("%+v was written, and %+v (%v) read", n, got, err)
		}
		if epoch := *of.Spec.LeaseTransitions; epoch != int32(4+i) || of.Labels["a"] != "b" || of.ResourceVersion != "7" {
			t.Errorf("the epoch is %d, and the Lease %v", epoch, of.ObjectMeta)
		}
		if holder := *of.Spec.HolderIdentity; (holder == "") != (n.Ranges == 1 && n.Next == 0) {
			t.Errorf("%+v is held by %q", n, holder)
		}
	}
	for _, of := range []*coordinationv1.Lease{nil, held} {
		if got, err := numberOn(of); err != nil || got.Ranges != 1 {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

func TestANumberThatMakesNoSenseIsAnErrorThatSaysWhatToDo(t *testing.T) {
	for _, text := range []string{"", "x", `{}`, `{"ranges":0}`, `{"ranges":1}`, `{"ranges":-4}`, `{"ranges":8,"next":-1}`, `{"ranges":"8"}`, `{"ranges":4096}`} {
		of := number{Ranges: 8}.writeTo(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "group"}})
		of.Annotations[numberAnnotation] = text
		if got, err := numberOn(of); err == nil || !strings.Contains(err.Error(), numberAnnotation) || !strings.Contains(err.Error(), "put it right") {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestARangeHasItsKeysAndNoOthers(t *testing.T) {
	for _, n := range []int{1, 2, 7, 64} {
		for key := range 300 {
			has := 0
			for k := range n {
				if (Range{k, n}).Has(fmt.Sprint(key)) {
					has++
				}
			}
			if has != 1 {
				t.Errorf("key %d is in %d of %d ranges", key, has, n)
			}
		}
	}
}
