package dev

import (
	"fmt"
	"syscall"
)

const (
	// reservedDescriptors are kept for etcd, which runs in this process, and for everything else but the fronts' connections. A
	// process that may open few files keeps half of them.
	reservedDescriptors = 256
	// mostConnections is plenty for one machine.
	mostConnections = 10_000
)

// connections returns how many connections each front may have open. It depends on this process's limit of open files: each
// connection takes two descriptors, one to the client and one to the replica.
func connections(fronts int) (int, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("cannot read the limit of open files: %w", err)
	}
	return share(limit.Cur, fronts), nil
}

// share divides the descriptors that are not reserved among the fronts.
func share(descriptors uint64, fronts int) int {
	free := descriptors - min(reservedDescriptors, descriptors/2)
	return int(max(1, min(free/2/uint64(fronts), mostConnections)))
}
