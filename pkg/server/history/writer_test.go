package history

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// of is an entry of a range.
func of(index int, epoch int64) Entry {
	e := entry(epoch)
	e.Range = index
	for n := range e.Before {
		e.Before[n].Range = index
	}
	return e
}

// slow is a client whose writes take a while, and are counted.
func slow(writes *atomic.Int64) *fake.Clientset {
	kube := fake.NewClientset()
	for _, verb := range []string{"create", "update"} {
		kube.PrependReactor(verb, "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			writes.Add(1)
			time.Sleep(20 * time.Millisecond)
			return false, nil, nil
		})
	}
	return kube
}

func TestTermsThatBeginTogetherAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes atomic.Int64
		kube, w := slow(&writes), NewWriter(book)
		const count = 48
		for _, epoch := range []int64{1, 2} {
			var all sync.WaitGroup
			for index := range count {
				all.Go(func() {
					if err := w.Add(t.Context(), kube, of(index, epoch)); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		}
		told := Terms(book.mustRead(t, kube))
		if len(told) != 2*count || len(w.waiting) != 0 {
			t.Errorf("%d terms are told, %d wait", len(told), len(w.waiting))
		}
		for _, one := range told {
			if ended := one.EndCause != ""; ended != (one.Epoch == 1) {
				t.Errorf("epoch %d of range %d has ended: %t", one.Epoch, one.Range, ended)
			}
		}
		// Each time the first one, and then all others, which have three or four pages.
		if n := writes.Load(); n > 2*(1+count/perPage+1) {
			t.Errorf("%d writes for %d terms", n, 2*count)
		}
	})
}

// A term that may not write any more keeps no other from it, and one that has ended is not waited for.
func TestATermThatCannotWriteLeavesItToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes atomic.Int64
		kube, w := slow(&writes), NewWriter(book)
		fenced := fake.NewClientset()
		errFenced := errors.New("the term is over")
		fenced.PrependReactor("create", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(20 * time.Millisecond)
			return true, nil, errFenced
		})
		var all sync.WaitGroup
		all.Go(func() {
			if err := w.Add(t.Context(), fenced, of(0, 1)); !errors.Is(err, errFenced) {
				t.Errorf("whose term is over: %v", err)
			}
		})
		synctest.Wait()
		ended, end := context.WithCancel(t.Context())
		all.Go(func() {
			if err := w.Add(ended, kube, of(1, 1)); !errors.Is(err, context.Canceled) {
				t.Errorf("whose term has ended while it waited: %v", err)
			}
		})
		for index := 2; index < 5; index++ {
			all.Go(func() {
				if err := w.Add(t.Context(), kube, of(index, 1)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		end()
		all.Wait()
		var told []string
		for _, e := range book.mustRead(t, kube) {
			told = append(told, fmt.Sprint(e.Range))
		}
		if len(told) != 3 || len(w.waiting) != 0 {
			t.Errorf("ranges %v are told, %d wait", told, len(w.waiting))
		}
	})
}

// An entry that is there already is not written again, however many entries of other ranges were written since.
func TestAnEntryIsWrittenOnceBesideManyRanges(t *testing.T) {
	p := pages{}
	for index := range mostRead {
		p.add(of(index, 1))
	}
	if p.add(of(0, 1)) {
		t.Error("the entry is written twice")
	}
	if slot, page, added := p.with(of(0, 2)); !added || len(page) == 0 {
		t.Errorf("the next one is not written: slot %d", slot)
	}
}
