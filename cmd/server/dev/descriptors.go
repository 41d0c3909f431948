package dev

import (
	"fmt"
	"syscall"
)

const (
	// reservedDescriptors are kept for each etcd, which runs in this process, and for everything else but the
	// balancer's connections. A process that may open few files keeps half of them.
	reservedDescriptors = 256
	// mostConnections is plenty for one machine.
	mostConnections = 10_000
)

// connections returns how many connections the balancer may have open beside so many etcds. It depends on this
// process's limit of open files: each connection takes two descriptors, one to the client and one to the backend.
func connections(etcds int) (int, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("cannot read the limit of open files: %w", err)
	}
	return share(limit.Cur, etcds), nil
}

// share returns how many connections the descriptors that are not reserved are enough for.
func share(descriptors uint64, etcds int) int {
	free := descriptors - min(reservedDescriptors*uint64(etcds), descriptors/2)
	return int(max(1, min(free/2, mostConnections)))
}
