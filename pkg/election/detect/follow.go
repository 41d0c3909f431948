package detect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election"
)

// Follow keeps a stream to the leader until ctx ends, and dials again whenever the stream breaks.
func (d *Detector) Follow(ctx context.Context, leader election.Contact, follower election.Follower) {
	f := &following{d: d, leader: leader, follower: follower, asked: make(chan string, 1), quiet: quiet{pulse: d.cfg.Interval / pulses}}
	defer f.hideState()
	if leader == (election.Contact{}) {
		f.state = absent
		f.showState(absent)
	}
	d.following.Store(f)
	defer d.following.CompareAndSwap(f, nil)
	if f.state == absent {
		<-ctx.Done()
		return
	}
	f.run(ctx)
}

// following is one call of Follow.
type following struct {
	d        *Detector
	leader   election.Contact
	follower election.Follower

	// capacity 1: the leader is in trouble, and asks who could write the Lease with this holder on it
	asked chan string

	mu       sync.Mutex
	state    state
	answered bool // the leader has answered with its key
	place    place
	news     election.News
	last     time.Time // when the leader was last heard
	quiet    quiet     // since then
	told     state     // the fault that was last logged
	abandon  context.CancelFunc
}

func (f *following) run(ctx context.Context) {
	f.becomeConnecting()
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { f.watchSilence(ctx) })

	var lost time.Time // when contact broke off
	failed := 0        // failed attempts since then, in a row
	brief := 0         // contacts in a row that broke right after they were made
	for ctx.Err() == nil {
		session, abandon := context.WithCancel(ctx)
		f.mu.Lock()
		f.abandon = abandon
		f.mu.Unlock()
		began := time.Now()
		made, err := f.session(session, f.d.dialPatience(f.hasAnswered(), failed), !lost.IsZero() && time.Since(lost) < haste)
		abandon()
		if made {
			lost, failed = time.Now(), 0
			if brief++; lost.Sub(began) >= haste {
				brief = 0
			}
		}
		f.becomeBroken(ctx, err, made, lost)
		wait := pause(!lost.IsZero(), time.Since(lost), failed)
		if brief > mostBrief {
			// the leader breaks the connections that it accepts, so it is not dying
			wait = max(wait, steady)
		}
		sleep(ctx, wait)
		failed++
	}
}

const (
	// haste is for how long the leader is dialled again every hasty, after contact broke off. If it is dead, its
	// address refuses connections as soon as the kernel has closed its sockets.
	haste, hasty = 250 * time.Millisecond, time.Millisecond
	// hastyDial is how long one of those attempts may take. If its first packet is lost, TCP would send it again
	// only after a second.
	hastyDial = 50 * time.Millisecond
	// mostBrief is how many contacts in a row may break right away before the attempts slow down.
	mostBrief = 3
	// steady is the pause between later attempts. longestDoubt is the longest pause between attempts to reach a
	// leader that has never answered.
	steady, longestDoubt = 250 * time.Millisecond, 15 * time.Second
	// askAgain is the shortest time between two answers to the leader's question.
	askAgain = time.Second
)

// pause returns the pause after a failed attempt. answered: the leader has answered before, and contact broke off that
// long ago (since). n is how many attempts in a row had failed before this one.
func pause(answered bool, since time.Duration, n int) time.Duration {
	switch {
	case answered && since < haste:
		return hasty
	case answered:
		return steady
	default:
		return min(100*time.Millisecond<<min(n, 10), longestDoubt)
	}
}

// session makes contact, with a bound of patience, and keeps it until it breaks. ok reports whether the leader
// answered. err says why contact broke or could not be made. With hurry the connection must be accepted or refused
// soon.
func (f *following) session(ctx context.Context, patience time.Duration, hurry bool) (ok bool, err error) {
	dialer := &net.Dialer{KeepAlive: -1} // beats replace TCP's keep-alive
	if hurry {
		dialer.Timeout = hastyDial
	}
	timeout := time.AfterFunc(patience, f.abandon)
	defer timeout.Stop()
	conn, err := f.connect(ctx, f.place.through(dialer, patience), f.leader.Address)
	if err != nil {
		return false, err
	}
	s, err := f.request(ctx, conn, f.leader.Address, f.d.cfg.Interval)
	if err != nil {
		return false, err
	}
	defer s.shut()
	f.place.confirm()

	var beside sync.WaitGroup
	defer beside.Wait()
	besideCtx, stop := context.WithCancel(ctx)
	defer stop()
	beside.Go(func() { f.answer(besideCtx, s.answers) })
	if port := s.header.Get(witnessHeader); port != "" {
		beside.Go(func() { f.watchWitness(besideCtx, port) })
	}
	err = lines(s.beats, func(s election.Statement) {
		ok = true
		timeout.Stop()
		if !f.hasAnswered() { // once for each leader, so that people see that replicas reach each other
			message := "In contact with the leader's process: a crash of it will be noticed at once"
			if f.follower.Waits {
				message += ", but its lease has to expire all the same, because its late writes are neither refused (Fenced) nor accepted (SucceedUnfenced)"
			}
			// its statement may be of an earlier term, so no holder is named
			klog.FromContext(ctx).Info(message, "address", f.leader.Address)
		}
		f.becomeAlive(s)
	})
	_ = s.answers.CloseWithError(err) // ends a write of an answer that may hang
	return ok, err
}

// stream is an open request to a leader's probe.
type stream struct {
	header  http.Header
	beats   io.Reader
	answers *io.PipeWriter
	shut    func() // ends it; the end of the context does so, too
}

// connect connects to an address of the leader's process. An error means that no process answered there with the
// leader's key.
func (f *following) connect(ctx context.Context, dial dialFunc, address string) (*http.ClientConn, error) {
	transport := &http.Transport{
		DialContext:     dial,
		TLSClientConfig: trusting(f.leader.Key),
		Protocols:       new(http.Protocols),
	}
	transport.Protocols.SetHTTP2(true)
	return transport.NewClientConn(ctx, "https", address)
}

// request asks on conn for a beat in each interval. If that fails, it closes conn.
func (f *following) request(ctx context.Context, conn *http.ClientConn, address string, interval time.Duration) (*stream, error) {
	body, answers := io.Pipe()
	closing := func() {
		_ = answers.Close()
		_ = conn.Close()
	}
	release := context.AfterFunc(ctx, closing) // while its body is open, a request ignores the end of its context
	req, err := f.newRequest(ctx, address, interval, body)
	if err != nil {
		release()
		closing()
		return nil, err
	}
	resp, err := conn.RoundTrip(req) //nolint:bodyclose // shut does
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%w: %s", errUnauthorized, resp.Status)
		if resp.StatusCode == http.StatusServiceUnavailable {
			err = errCrowded
		}
		_ = resp.Body.Close()
	}
	if err != nil {
		release()
		closing()
		return nil, err
	}
	return &stream{header: resp.Header, beats: resp.Body, answers: answers, shut: func() {
		release()
		_ = resp.Body.Close()
		closing()
	}}, nil
}

func (f *following) newRequest(ctx context.Context, address string, interval time.Duration, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+path, body)
	if err != nil {
		return nil, fmt.Errorf("the address of the leader's probe is not valid: %w", err)
	}
	req.Header.Set("Authorization", bearer+credential(f.d.secret, f.leader.Key))
	req.Header.Set(replicaHeader, f.d.cfg.Replica)
	req.Header.Set(intervalHeader, interval.String())
	req.Header.Set(modeHeader, string(f.follower.Is.Mode))
	req.Header.Set(priorityHeader, strconv.Itoa(int(f.follower.Is.Priority)))
	if instance := f.follower.Is.Instance; !strings.ContainsFunc(instance, unicode.IsControl) {
		req.Header.Set(instanceHeader, instance)
	}
	if led := f.follower.Is.Led; !strings.ContainsFunc(led, unicode.IsControl) {
		req.Header.Set(ledHeader, led)
	}
	if url := f.follower.Is.URL; url != "" && !strings.ContainsFunc(url, unicode.IsControl) {
		req.Header.Set(urlHeader, url)
	}
	return req, nil
}

// errUnauthorized: the leader does not accept this process's credential.
var errUnauthorized = errors.New("the leader's probe refuses this replica: check that both have the same secret (replicas of a Regent shard: the same etcd) and the same version")

// errCrowded: the leader has too many connections.
var errCrowded = errors.New("the leader's probe has as many followers as it can have")

// dialPatience bounds an attempt to make contact. failed is how many attempts in a row have failed. If the leader
// answered before, the first attempt takes no longer than the leader may be silent: it may be dead, and the packets to
// it lost.
func (d *Detector) dialPatience(answered bool, failed int) time.Duration {
	if answered {
		return min(d.cfg.silence()<<min(failed, 10), max(d.cfg.silence(), d.handshake))
	}
	return d.handshake
}

// answer tells a leader in trouble that this process could write the Lease, if so.
func (f *following) answer(ctx context.Context, w io.Writer) {
	for {
		select {
		case <-ctx.Done():
			return
		case holder := <-f.asked:
			if f.follower.Writes(ctx, holder) {
				_, _ = w.Write(lineOf(confirmation{Reads: holder, Writes: holder}))
			}
			sleep(ctx, askAgain) // if the leader is still in trouble, a later beat asks again
		}
	}
}

// watchSilence notices when the leader falls silent.
func (f *following) watchSilence(ctx context.Context) {
	pulse := time.NewTicker(f.quiet.pulse)
	defer pulse.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pulse.C:
			f.pulse(ctx, time.Now())
		}
	}
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
