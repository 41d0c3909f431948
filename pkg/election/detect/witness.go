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

// A process that is killed frees its memory in the last of its threads: some 70 to 150 ms for each GiB. Until then the
// sockets of that thread stay open. If it happens to be the probe's, standbys learn of the death that late, which was
// so for one death of ten or twenty. Only one thread is the last one. So there is a witness: another port of the probe,
// in another thread of its own. Standbys keep a stream to both.

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

// watchWitness keeps a stream to the leader's witness until ctx ends. The leader has named its port on the stream to
// its probe.
func (f *following) watchWitness(ctx context.Context, port string) {
	address := net.JoinHostPort(f.place.host(), port)
	var judge testimony
	for ctx.Err() == nil {
		began := time.Now()
		met, err := f.meetWitness(ctx, address)
		gone, wait := judge.after(began, time.Now(), met, err)
		if !gone.IsZero() {
			f.becomeGone(ctx, address, gone)
		}
		sleep(ctx, wait)
	}
}

// meetWitness keeps a stream to the witness until it breaks. ok reports whether the leader's key answered there; if
// not, err says why.
func (f *following) meetWitness(ctx context.Context, address string) (ok bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timeout := time.AfterFunc(f.d.handshake, cancel)
	defer timeout.Stop()
	conn, err := f.connect(ctx, (&net.Dialer{KeepAlive: -1}).DialContext, address)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("No contact with the second port of the leader's probe: if the leader is killed, this process may notice it only when "+
			"the leader's memory was freed. Let replicas reach all ports of each other", "address", address, "err", err)
		return false, err
	}
	s, err := f.request(ctx, conn, address, longestInterval)
	if err != nil {
		return true, err
	}
	defer s.shut()
	timeout.Stop()
	_, err = io.Copy(io.Discard, s.beats)
	return true, err
}

// testimony is what the attempts to keep a stream to one witness tell.
type testimony struct {
	// when the leader's key last answered there; zero if it never did, or the death that followed was told
	lost   time.Time
	failed int // attempts in a row that led to no lasting stream
}

// after takes in how an attempt ended, which was made at began. death is zero, or the time since when the process is
// gone: its stream broke, and now its port refuses. wait is the pause until the next attempt.
func (t *testimony) after(began, now time.Time, met bool, err error) (death time.Time, wait time.Duration) {
	switch {
	case met:
		t.lost = now
		if now.Sub(began) >= haste {
			t.failed = 0
			return death, hasty
		} // Else it breaks what it accepts. So it is not dying.
	case !t.lost.IsZero() && errors.Is(err, syscall.ECONNREFUSED):
		death, t.lost = t.lost, time.Time{} // told once: the process may live
	case !t.lost.IsZero() && now.Sub(t.lost) < haste:
		return death, hasty
	}
	t.failed++
	return death, pause(false, 0, t.failed-1)
}
