package clusters

import "time"

const (
	// MaxRecent is how many changes an informer remembers. It is more than a busy shard makes while one leader
	// follows another.
	MaxRecent = 1024
	// recentAge is for how long it remembers them. A leader is succeeded sooner, and changes keep objects in
	// memory.
	recentAge = time.Minute
)

// recent remembers the last changes of an informer, the oldest first. The informer's mu guards it.
type recent[T Object] []remembered[T]

type remembered[T Object] struct {
	change[T]
	at time.Time
}

func (r *recent[T]) add(now time.Time, changes ...change[T]) {
	for _, c := range changes {
		*r = append(*r, remembered[T]{c, now})
	}
	r.forget(now)
}

// forget forgets what is old, and what is too much.
func (r *recent[T]) forget(now time.Time) {
	all := *r
	for len(all) > 0 && (len(all) > MaxRecent || now.Sub(all[0].at) > recentAge) {
		all[0] = remembered[T]{} // nothing may hold the objects
		all = all[1:]
	}
	if len(all) == 0 {
		all = nil
	}
	*r = all
}

// list returns the changes, the oldest first.
func (r recent[T]) list() (all []change[T]) {
	for _, c := range r {
		all = append(all, c.change)
	}
	return all
}
