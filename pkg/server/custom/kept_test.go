package custom

import (
	"fmt"
	"sync"
	"testing"
)

func TestADocumentIsMadeByOneAtATime(t *testing.T) {
	m := &making{}
	a, b := 0, 0 // the race detector tells if two are at one of them
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			made, _ := m.lock(t.Context(), "a")
			defer made()
			a++
		})
		all.Go(func() {
			made, _ := m.lock(t.Context(), "b")
			defer made()
			b++
		})
	}
	all.Wait()
	if a != 100 || b != 100 || len(m.at) != 0 {
		t.Errorf("made %d and %d times, under way %v", a, b, m.at)
	}
}

func TestLargeDocumentsAreNotKeptManyAtATime(t *testing.T) {
	k := &kept{}
	const size = maxDocumentBytes / 4
	for n := range 10 {
		k.add(fmt.Sprint(n), n, size)
		if _, ok := k.get("0"); n < 9 && !ok {
			t.Fatalf("the one that is used always has gone after %d others", n)
		}
	}
	if k.size != maxDocumentBytes || len(k.at) != 4 || k.recent.Len() != 4 {
		t.Errorf("%d documents of %d bytes are kept", len(k.at), k.size)
	}
	if _, ok := k.get("5"); ok {
		t.Error("one that was not used for long is kept")
	}
	k.add("9", 9, 2*maxDocumentBytes)
	if what, ok := k.get("9"); !ok || what != 9 || len(k.at) != 1 {
		t.Errorf("one that is larger than the bound: kept %v, of %d", ok, len(k.at))
	}
	for n := range 3 * maxDocuments {
		k.add(fmt.Sprint(n), n, 1)
	}
	if len(k.at) != maxDocuments {
		t.Errorf("%d documents are kept", len(k.at))
	}
}
