package custom

import (
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
