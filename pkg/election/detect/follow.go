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

	"github.com/regent-project/regent/pkg/election"
)

// Follow holds a stream to the leader until ctx ends, and dials anew whenever it breaks.
func (d *Detector) Follow(ctx context.Context, leader election.Contact, follower election.Follower) {
	defer setState(d.cfg.Name, idle)
	if leader == (election.Contact{}) {
		setState(d.cfg.Name, absent)
		<-ctx.Done()
		return
	}
	f := &following{d: d, leader: leader, follower: follower, asked: make(chan string, 1), heard: make(chan struct{}, 1)}
	f.run(ctx)
}

// following is one call of Follow.
type following struct {
	d        *Detector
	leader   election.Contact
	follower election.Follower

	asked chan string   // capacity 1: the leader is in trouble and asks who could write the Lease with this holder
	heard chan struct{} // capacity 1: a beat came

	mu       sync.Mutex
	state    state
	answered bool // the leader has answered, at this address and with its key
	news     election.News
	last     time.Time // when it was last heard
	told     state     // the fault that was logged last
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
	failed := 0        // attempts since, in a row
	brief := 0         // contacts in a row that broke right after they were made
	for ctx.Err() == nil {
		session, abandon := context.WithCancel(ctx)
		f.mu.Lock()
		f.abandon = abandon
		f.mu.Unlock()
		began := time.Now()
		made, err := f.session(session, f.d.patience(f.hasAnswered(), failed), !lost.IsZero() && time.Since(lost) < haste)
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
			wait = max(wait, steady) // it breaks what it accepts, and is not dying
		}
		sleep(ctx, wait)
		failed++
	}
}

const (
	// haste is how long after contact broke off the leader is dialled every hasty: if it is dead, its address refuses as
	// soon as the kernel has closed its descriptors.
	haste, hasty = 250 * time.Millisecond, time.Millisecond
	// hastyDial is what each of those may take to be accepted or refused: one whose packet is lost in the turmoil would
	// be sent again after a second.
	hastyDial = 50 * time.Millisecond
	// mostBrief is how many contacts in a row may break right away before haste is waste.
	mostBrief = 3
	// steady is between attempts after that, longestDoubt the longest between those to a leader that never answered.
	steady, longestDoubt = 250 * time.Millisecond, 15 * time.Second
	// askAgain is how long after an answer the leader may ask again.
	askAgain = time.Second
)

// pause is what to wait after an attempt: the n-th in a row that failed, so long after contact broke off, if there was any.
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

// session makes contact, within the patience that is given, and keeps it until it breaks. made reports whether the leader
// answered, err why contact broke or was not made. In a hurry it does not wait long to be accepted or refused.
func (f *following) session(ctx context.Context, patience time.Duration, hurry bool) (made bool, err error) {
	dialer := &net.Dialer{KeepAlive: -1} // beats keep it alive
	if hurry {
		dialer.Timeout = hastyDial
	}
	timeout := time.AfterFunc(patience, f.abandon)
	defer timeout.Stop()
	transport := &http.Transport{
		DialContext:     dialer.DialContext,
		TLSClientConfig: trusting(f.leader.Key),
		Protocols:       new(http.Protocols),
	}
	transport.Protocols.SetHTTP2(true)
	conn, err := transport.NewClientConn(ctx, "https", f.leader.Address)
	if err != nil {
		return false, err
	}
	body, answers := io.Pipe()
	shut := func() {
		_ = answers.Close()
		_ = conn.Close()
	}
	defer shut()
	defer context.AfterFunc(ctx, shut)() // a request whose body is open does not heed its context
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+f.leader.Address+path, body)
	if err != nil {
		return false, fmt.Errorf("the leader's probe is at no address: %w", err)
	}
	req.Header.Set("Authorization", bearer+credential(f.d.secret, f.leader.Key))
	req.Header.Set(replicaHeader, f.d.cfg.Replica)
	req.Header.Set(intervalHeader, f.d.cfg.Interval.String())
	req.Header.Set(modeHeader, string(f.follower.Is.Mode))
	req.Header.Set(priorityHeader, strconv.Itoa(int(f.follower.Is.Priority)))
	if led := f.follower.Is.Led; !strings.ContainsFunc(led, unicode.IsControl) {
		req.Header.Set(ledHeader, led)
	}
	resp, err := conn.RoundTrip(req)
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusServiceUnavailable:
		return false, errCrowded
	default:
		return false, fmt.Errorf("%w: %s", errUnauthorized, resp.Status)
	}

	var answering sync.WaitGroup
	defer answering.Wait()
	answeringCtx, stop := context.WithCancel(ctx)
	defer stop()
	answering.Go(func() { f.answer(answeringCtx, answers) })
	err = lines(resp.Body, func(s election.Statement) {
		made = true
		timeout.Stop()
		f.becomeAlive(s)
	})
	_ = answers.CloseWithError(err) // a write of an answer may hang in it
	return made, err
}

// errUnauthorized is the error of a leader that does not want this process.
var errUnauthorized = errors.New("the leader's probe refuses this replica: has it another etcd, or another version?")

// errCrowded is the error of a leader that has no place for this process's stream.
var errCrowded = errors.New("the leader's probe has as many followers as it can have")

// patience bounds an attempt to make contact, after so many in a row that failed. With a leader that answered before the
// first takes no longer than its silence may: it may be dead, and what was sent to it lost.
func (d *Detector) patience(answered bool, failed int) time.Duration {
	if answered {
		return min(d.cfg.silence()<<min(failed, 10), max(d.cfg.silence(), d.handshake))
	}
	return d.handshake
}

// answer tells a leader in trouble that the Lease can be written from here, if so.
func (f *following) answer(ctx context.Context, w io.Writer) {
	for {
		select {
		case <-ctx.Done():
			return
		case holder := <-f.asked:
			if f.follower.Writes(ctx, holder) {
				_, _ = w.Write(lineOf(confirmation{Reads: holder, Writes: holder}))
			}
			sleep(ctx, askAgain) // a later beat asks
		}
	}
}

// watchSilence finds that the leader is silent.
func (f *following) watchSilence(ctx context.Context) {
	for {
		f.mu.Lock()
		last, answered := f.last, f.news.Sign == election.Alive
		f.mu.Unlock()
		due := last.Add(f.d.cfg.silence())
		var timer <-chan time.Time
		if answered {
			timer = time.After(time.Until(due))
		}
		select {
		case <-ctx.Done():
			return
		case <-f.heard:
		case <-timer:
			f.becomeSilent(ctx, last, due)
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
