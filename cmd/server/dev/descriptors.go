package dev

import (
	"fmt"
	"syscall"
)

const (
	// reservedDescriptors are for etcd, which is in this process too, and for all else but the fronts' connections; half of
	// what there is, if that is less.
	reservedDescriptors = 256
	// mostConnections is enough for one machine.
	mostConnections = 10_000
)

// connections returns how many connections each of the fronts may have at once, by this process's limit of open files.
// Each takes two descriptors: the client's and the replica's.
func connections(fronts int) (int, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("cannot read the limit of open files: %w", err)
	}
	return share(limit.Cur, fronts), nil
}

func share(descriptors uint64, fronts int) int {
	free := descriptors - min(reservedDescriptors, descriptors/2)
	return int(max(1, min(free/2/uint64(fronts), mostConnections)))
}
