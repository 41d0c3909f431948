package detect

import (
	"context"
	"fmt"
	"net"
)

// listen opens the probe's socket. Where possible it moves the socket to a thread of its own: see ownThread.
func listen(ctx context.Context, address string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot open the probe, give another --probe-port: %w", err)
	}
	return inOwnThread(ctx, listener, ownTable), nil
}
