package shards

import (
	"context"
	"time"
)

// unheardAfter is how long a watch may be broken until the shard counts as not heard: servers end watches every few
// minutes, and clients begin them again at once. firstUnheardAfter is how long it may take until the shard is heard at
// all.
const (
	unheardAfter      = time.Second
	firstUnheardAfter = 15 * time.Second
)

// Listener is told whether a shard is heard.
type Listener struct {
	// Hears is called when the shard begins to be heard. Misses is called when it has not been for a second, or for
	// some more at first: all processes of an installation may have been started just now.
	Hears, Misses func()
	// Wavers is called when a watch of a shard that is heard has just broken, and when all are open again in time.
	Wavers func(bool)
}

// Tell says whether a shard is heard, until ctx ends: as many watches are open as are needed, and behind returns nil.
// behind returns a channel that is closed when it should be asked again.
func (o *OpenWatches) Tell(ctx context.Context, needed int, behind func() <-chan struct{}, to Listener) {
	heard, late := false, time.After(firstUnheardAfter) // late is nil while nothing is expected
	for {
		later := behind()
		open, changed := o.Count()
		switch all := later == nil && open >= needed; {
		case all && !heard:
			heard, late = true, nil
			to.Hears()
		case all && late != nil:
			late = nil
			to.Wavers(false)
		case !all && heard && late == nil:
			late = time.After(unheardAfter)
			to.Wavers(true)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-later:
		case <-late:
			heard, late = false, nil
			to.Misses()
		}
	}
}
