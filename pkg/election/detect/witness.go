package detect

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

// A process that is killed frees its memory in the last of its threads: some 70 to 150 ms for each GiB. Until then the sockets of
// that thread stay open. If it happens to be the probe's, standbys learn of the death that late, which was so for one death of ten or
// twenty. Only one thread is the last one. So there is a witness: another port of the probe, in another thread of its own. Standbys
// keep a stream to both.

// listenWitness opens the witness. Without one nothing is lost but time, so a failure is only logged.
func (d *Detector) listenWitness(ctx context.Context, probe net.Listener) net.Listener {
	if !inThread(probe) {
		return nil // it would close when the probe does
	}
	host, _, _ := net.SplitHostPort(d.cfg.Listen)
	listener, err := listen(ctx, net.JoinHostPort(host, "0"))
	if err != nil {
		klog.FromContext(ctx).Error(err, "The probe has no second port: if this process is killed, standbys may notice it only when its memory was freed")
		return nil
	}
	return newLimitedListener(listener, d.cfg.Name, d.handshake, klog.FromContext(ctx))
}

// portOf returns the port on which a listener of TCP listens.
func portOf(listener net.Listener) string {
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port
}

// watchWitness keeps a stream to the leader's witness until ctx ends. The leader has named its port on the stream to its probe. If the
// stream breaks and the port then refuses, the process is gone, although the probe's stream has not broken yet.
func (f *following) watchWitness(ctx context.Context, port string) {
	host, _, err := net.SplitHostPort(f.leader.Address)
	if err != nil {
		return
	}
	address := net.JoinHostPort(host, port)
	for attempt := 0; ctx.Err() == nil; attempt++ {
		if f.meetWitness(ctx, address) {
			attempt = 0
			if lost := time.Now(); ctx.Err() == nil && refuses(ctx, address) {
				f.becomeGone(ctx, address, lost)
			}
		}
		sleep(ctx, pause(false, 0, attempt))
	}
}

// meetWitness keeps a stream to the witness until it breaks. It reports whether there was one.
func (f *following) meetWitness(ctx context.Context, address string) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timeout := time.AfterFunc(f.d.handshake, cancel)
	defer timeout.Stop()
	s, err := f.open(ctx, &net.Dialer{KeepAlive: -1}, address, longestInterval)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("No contact with the second port of the leader's probe: if the leader is killed, this process may notice it only when "+
			"the leader's memory was freed. Let replicas reach all ports of each other", "address", address, "err", err)
		return false
	}
	defer s.shut()
	timeout.Stop()
	_, _ = io.Copy(io.Discard, s.beats)
	return true
}

// refuses reports whether an address refuses connections soon. It returns at the end of ctx: whoever follows waits for it then.
func refuses(ctx context.Context, address string) bool {
	dialer := &net.Dialer{Timeout: hastyDial}
	for began := time.Now(); ctx.Err() == nil && time.Since(began) < haste; sleep(ctx, hasty) {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		switch {
		case err == nil:
			_ = conn.Close()
			return false
		case errors.Is(err, syscall.ECONNREFUSED):
			return true
		}
	}
	return false
}
