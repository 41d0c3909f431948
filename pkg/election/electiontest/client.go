package electiontest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/regent-project/regent/pkg/election/fence"
)

// Client is one replica's client of a Store. It implements election.LeaseClient, and has its own faults.
type Client struct {
	Faults
	store *Store

	mu    sync.Mutex
	held  chan struct{} // not nil: watches bring nothing until it is closed
	drops chan struct{} // closed: watches end with "too old resource version"
	late  sync.WaitGroup
}

// Client returns a new client.
func (s *Store) Client() *Client {
	return &Client{store: s, drops: make(chan struct{})}
}

// HoldWatches holds back the events of all watches, or releases them.
func (c *Client) HoldWatches(hold bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case hold && c.held == nil:
		c.held = make(chan struct{})
	case !hold && c.held != nil:
		close(c.held)
		c.held = nil
	}
}

// DropWatches ends all watches with "too old resource version", as after a compaction.
func (c *Client) DropWatches() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.drops)
	c.drops = make(chan struct{})
}

// Wait returns when no delayed write or answer is under way.
func (c *Client) Wait() { c.late.Wait() }

// Candidates returns a client of the store's LeaseCandidates, with c's faults, and others of its own.
func (c *Client) Candidates() *CandidateClient {
	return &CandidateClient{client: c, candidates: c.store.Candidates()}
}

// List returns the Lease that the options select by its name, or all Leases if they select none.
func (c *Client) List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	return do(ctx, c, List, func() (*coordinationv1.LeaseList, error) {
		if opts.FieldSelector == "" {
			return c.store.listAll(), nil
		}
		return c.store.selected(opts).list(), nil
	})
}

// Create creates a Lease, or with a dry run says what it would have created.
func (c *Client) Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return do(ctx, c, Create, func() (*coordinationv1.Lease, error) {
		return c.store.Of(lease.Name).create(fence.From(ctx), lease, len(opts.DryRun) > 0)
	})
}

// Update updates a Lease.
func (c *Client) Update(ctx context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return do(ctx, c, Update, func() (*coordinationv1.Lease, error) {
		return c.store.Of(lease.Name).update(fence.From(ctx), lease)
	})
}

// Delete deletes the Lease of this name if it has the uid in the options' preconditions.
func (c *Client) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	_, err := do(ctx, c, Delete, func() (any, error) { return nil, c.store.Of(name).remove(opts.Preconditions) })
	return err
}

// Watch sends every change, after a revision, of the Lease that the options select by its name, or of all Leases if
// they select none.
func (c *Client) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	revision, err := strconv.ParseInt(opts.ResourceVersion, 10, 64)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a watch needs a resourceVersion: %v", err))
	}
	of, changes := c.store.selected(opts), c.store.selected(opts).after
	if opts.FieldSelector == "" {
		of, changes = c.store, c.store.log.after
	}
	return do(ctx, c, Watch, func() (watch.Interface, error) { return c.watch(ctx, of, changes, revision), nil })
}

// do makes one request of a Lease, with its fault.
func do[T any](ctx context.Context, c *Client, r Request, request func() (T, error)) (T, error) {
	return with(ctx, c, c.fault(r), request)
}

// with makes one request with a fault.
func with[T any](ctx context.Context, c *Client, fault Fault, request func() (T, error)) (none T, _ error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	switch {
	case fault.Hang:
	case fault.Err != nil:
		return none, fault.Err
	case fault.LoseReply:
		_, _ = request()
	case fault.AnswerDelay > 0:
		value, err := request()
		c.late.Go(func() {
			time.Sleep(fault.AnswerDelay)
			answers <- answer{value, err}
		})
	case fault.Delay > 0:
		c.late.Go(func() {
			time.Sleep(fault.Delay)
			value, err := request()
			answers <- answer{value, err}
		})
	case ctx.Err() != nil:
		return none, ctx.Err()
	default:
		return request()
	}
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// watch starts a watch, which ends with ctx or by Stop.
func (c *Client) watch(ctx context.Context, of *Store, changes after, revision int64) watch.Interface {
	ctx, cancel := context.WithCancel(ctx)
	w := &watching{events: make(chan watch.Event), cancel: cancel}
	c.mu.Lock()
	drops := c.drops
	c.mu.Unlock()
	go func() {
		defer close(w.events)
		err := c.tell(ctx, of, changes, revision, drops, w.events)
		if errors.Is(err, errDropped) {
			select {
			case w.events <- watch.Event{Type: watch.Error, Object: &apierrors.NewResourceExpired("too old resource version").ErrStatus}:
			case <-ctx.Done():
			}
		}
	}()
	return w
}

var errDropped, errRestored = errors.New("dropped"), errors.New("restored")

// after returns the first change after a revision, or a channel that is closed at the next change.
type after func(revision int64) (*Change, <-chan struct{})

// tell sends every change after revision, until ctx ends, the watch is dropped, or the store is restored.
func (c *Client) tell(ctx context.Context, of *Store, changes after, revision int64, drops <-chan struct{}, events chan<- watch.Event) error {
	restored, expired := of.watched(revision)
	if expired {
		return errDropped
	}
	for {
		c.mu.Lock()
		held := c.held
		c.mu.Unlock()
		var change *Change
		var proceed <-chan struct{} = held
		if held == nil {
			change, proceed = changes(revision)
		}
		if change == nil {
			select {
			case <-proceed:
			case <-drops:
				return errDropped
			case <-restored:
				return errRestored
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		select {
		case events <- watch.Event{Type: change.Type, Object: change.Lease.DeepCopy()}:
			revision = change.Revision
		case <-drops:
			return errDropped
		case <-restored:
			return errRestored
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watching is a running watch.
type watching struct {
	events chan watch.Event
	cancel context.CancelFunc
}

// Stop ends the watch.
func (w *watching) Stop() { w.cancel() }

// ResultChan returns the events. It is closed when the watch has ended.
func (w *watching) ResultChan() <-chan watch.Event { return w.events }
