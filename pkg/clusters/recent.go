package clusters

import "slices"

// maxRecent is how many changes an informer remembers. It is more than a busy shard makes while one leader follows another.
const maxRecent = 1024

// recent remembers the last changes of an informer. The informer's mu guards it.
type recent[T Object] struct {
	changes []change[T]
	// next is the place of the oldest change, once there are maxRecent.
	next int
}

func (r *recent[T]) add(changes ...change[T]) {
	for _, c := range changes {
		if len(r.changes) < maxRecent {
			r.changes = append(r.changes, c)
			continue
		}
		r.changes[r.next] = c
		r.next = (r.next + 1) % maxRecent
	}
}

// list returns the changes, the oldest first.
func (r *recent[T]) list() []change[T] {
	return slices.Concat(r.changes[r.next:], r.changes[:r.next])
}
