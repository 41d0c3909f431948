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
	var lost time.Time // when the last stream broke, until something follows from it
	for attempt := 0; ctx.Err() == nil; attempt++ {
		began := time.Now()
		err := f.meetWitness(ctx, address)
		wait := pause(!lost.IsZero(), time.Since(lost), attempt)
		switch {
		case err == nil:
			lost, attempt, wait = time.Now(), 0, hasty
			if lost.Sub(began) < haste {
				wait = steady // whoever breaks what it accepts is not dying
			}
		case !lost.IsZero() && errors.Is(err, syscall.ECONNREFUSED):
			f.becomeGone(ctx, address, lost)
			lost = time.Time{} // the process may live: it is told once
		}
		sleep(ctx, wait)
	}
}

// meetWitness keeps a stream to the witness until it breaks. An error says that there was none.
func (f *following) meetWitness(ctx context.Context, address string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timeout := time.AfterFunc(f.d.handshake, cancel)
	defer timeout.Stop()
	s, err := f.open(ctx, &net.Dialer{KeepAlive: -1}, address, longestInterval)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("No contact with the second port of the leader's probe: if the leader is killed, this process may notice it only when "+
			"the leader's memory was freed. Let replicas reach all ports of each other", "address", address, "err", err)
		return err
	}
	defer s.shut()
	timeout.Stop()
	if f.d.witnessed != nil {
		f.d.witnessed()
	}
	_, _ = io.Copy(io.Discard, s.beats)
	return nil
}
