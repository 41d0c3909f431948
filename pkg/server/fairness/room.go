package fairness

// room is a number of places that tenants share.
type room struct{ size, taken int }

// admits reports whether a tenant that has so many places may take more: as long as it then has no more than were free.
// A tenant that has none may take what it needs if any place is free. So the places can be overdrawn, by one large
// request.
//
// It is the rule by which switches share their memory among ports (Choudhury and Hahne, "Dynamic queue length
// thresholds", 1998). It needs to know nothing about who else will come, and keeps room for them: of n greedy tenants
// each gets the n+1st part.
func (r room) admits(has, more int) bool {
	free := r.size - r.taken
	if has == 0 {
		return free > 0
	}
	return has+more <= free
}

// userShare is how many of so many places one user of a tenant may have. It is three quarters of what a tenant alone
// can have, so that one user's requests that never end leave something to the others of the tenant.
func userShare(size int) int { return size * 3 / 8 }

// within reports whether somebody that has so many places may take more up to a limit. The first may always be taken.
func within(limit, has, more int) bool { return has == 0 || has+more <= limit }
