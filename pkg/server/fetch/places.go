package fetch

import (
	"context"
	"errors"
	"sync"
)

// placesOfEach is how many questions to one server may be under way. Whoever finds no place waits: so a server that is
// slow costs those who ask it time, and this process few connections and nobody else anything.
const placesOfEach = 16

// Places are those for questions, by the name of the server that is asked. Names must be few: none is forgotten. It is
// ready for use. All methods may be called at any time on any goroutine.
type Places struct{ byName sync.Map } // of chan struct{}

// Enter waits for a place, until ctx ends.
func (p *Places) Enter(ctx context.Context, name string) (leave func(), err error) {
	found, ok := p.byName.Load(name)
	if !ok {
		found, _ = p.byName.LoadOrStore(name, make(chan struct{}, placesOfEach))
	}
	of := found.(chan struct{})
	select {
	case of <- struct{}{}:
		return func() { <-of }, nil
	case <-ctx.Done():
		return nil, errors.New("too many others ask it, and wait for its answers: try again")
	}
}
