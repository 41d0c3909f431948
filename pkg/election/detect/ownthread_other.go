//go:build !linux

package detect

import (
	"context"
	"net"
)

// ownTable is of no use here.
const ownTable = ""

// inOwnThread returns listener. On this system a thread cannot have descriptors of its own.
func inOwnThread(_ context.Context, listener net.Listener, _ string) net.Listener { return listener }

func inThread(net.Listener) bool { return false }
