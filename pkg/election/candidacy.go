package election

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// CandidateClient is the part of coordinationv1beta1client.LeaseCandidateInterface that the Elector uses, for the
// Lease's namespace.
type CandidateClient interface {
	List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1beta1.LeaseCandidateList, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	Create(ctx context.Context, candidate *coordinationv1beta1.LeaseCandidate, opts metav1.CreateOptions) (*coordinationv1beta1.LeaseCandidate, error)
	Update(ctx context.Context, candidate *coordinationv1beta1.LeaseCandidate, opts metav1.UpdateOptions) (*coordinationv1beta1.LeaseCandidate, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// candidacy keeps the LeaseCandidate of this process, and answers when the electing controller asks whether it lives
// (KEP-4355). client-go's NewCandidate keeps one candidate for as long as a process lives. Here each term has a
// candidate of its own, whose name is the term's holder identity.
type candidacy struct {
	client   CandidateClient
	spec     coordinationv1beta1.LeaseCandidateSpec
	presence func(holder string) lease.Presence // returns what a candidate says of this process
	timeout  time.Duration                      // of a request
	longest  time.Duration                      // pause between two attempts
	standing *lease.Standing                    // tells why the candidate cannot be kept

	mu      sync.Mutex
	name    string        // of the wanted candidate; empty: none
	changed chan struct{} // closed when name changes
	gone    chan struct{} // closed when the latest candidate is gone
}

func newCandidacy(cfg Config, mode Coordinated, presence func(holder string) lease.Presence, standing *lease.Standing) *candidacy {
	return &candidacy{
		standing: standing,
		client:   cfg.Candidates,
		spec: coordinationv1beta1.LeaseCandidateSpec{
			LeaseName: cfg.Name, BinaryVersion: mode.BinaryVersion, EmulationVersion: mode.EmulationVersion,
			Strategy: coordinationv1.OldestEmulationVersion,
		},
		presence: presence,
		timeout:  cfg.requestTimeout(), longest: cfg.RetryPeriod,
		changed: make(chan struct{}), gone: closed(),
	}
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// stand makes this process a candidate of that name, in place of any other; empty: it is no candidate. It does not wait
// until that is done.
func (c *candidacy) stand(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if name != c.name {
		c.name = name
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

// withdrawn returns a channel that is closed when the latest candidate is gone. Call it after stand("").
func (c *candidacy) withdrawn() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// run keeps the candidate that stand asked for, until ctx ends, and then deletes it.
func (c *candidacy) run(ctx context.Context) {
	var leaving sync.WaitGroup
	defer leaving.Wait()
	for ctx.Err() == nil {
		c.mu.Lock()
		name, changed := c.name, c.changed
		over := make(chan struct{})
		if name != "" {
			c.gone = over
		}
		c.mu.Unlock()
		standCtx, end := context.WithCancel(ctx)
		var ending sync.WaitGroup
		ending.Go(func() {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			end()
		})
		if name != "" {
			c.standAs(standCtx, name)
			leaving.Go(func() {
				defer close(over)
				for !c.withdraw(ctx, name) && ctx.Err() == nil {
					lease.Sleep(ctx, c.longest)
				}
			})
		}
		ending.Wait()
	}
}

// standAs keeps the candidate of that name until ctx ends. It tries again after every failure.
func (c *candidacy) standAs(ctx context.Context, name string) {
	pause := lease.NewBackoff(c.longest)
	defer c.standing.Over()
	for {
		began := time.Now()
		watched, err := c.keep(ctx, name)
		if ctx.Err() != nil {
			return
		}
		if !watched && err != nil {
			c.standing.Failed(klog.FromContext(ctx), name, began, err)
		}
		if watched && time.Since(began) >= c.longest { // as lease.Watcher
			pause = lease.NewBackoff(c.longest)
		}
		delay := pause.Next()
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Cannot keep this process's LeaseCandidate: trying again", "candidate", name, "after", delay, "err", err)
		}
		lease.Sleep(ctx, delay)
	}
}

// keep creates the candidate if it does not exist, and answers for it until its watch ends or it is deleted. A deletion
// is no error. watched reports whether the watch began.
func (c *candidacy) keep(ctx context.Context, name string) (watched bool, err error) {
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
	request, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	list, err := c.client.List(request, only)
	if err != nil {
		return false, fmt.Errorf("read the LeaseCandidate: %w", err)
	}
	only.ResourceVersion = list.ResourceVersion
	if len(list.Items) == 0 {
		created, err := c.create(ctx, name)
		if err != nil {
			return false, fmt.Errorf("create the LeaseCandidate: %w", err)
		}
		only.ResourceVersion = created.ResourceVersion
	} else if err := c.answer(ctx, &list.Items[0]); err != nil {
		return false, err
	}
	only.AllowWatchBookmarks = true
	events, err := lease.BeginWatch(ctx, c.timeout, c.client.Watch, only)
	if err != nil {
		return false, fmt.Errorf("watch the LeaseCandidate: %w", err)
	}
	c.standing.Succeeded(klog.FromContext(ctx))
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return true, ctx.Err()
		case event, open := <-events.ResultChan():
			candidate, _ := event.Object.(*coordinationv1beta1.LeaseCandidate)
			switch {
			case !open:
				return true, errors.New("the watch of the LeaseCandidate ended")
			case event.Type == watch.Error:
				return true, fmt.Errorf("watch the LeaseCandidate: %w", apierrors.FromObject(event.Object))
			case event.Type == watch.Deleted:
				return true, nil
			case event.Type == watch.Added || event.Type == watch.Modified:
				if err := c.answer(ctx, candidate); err != nil {
					return true, err
				}
			}
		}
	}
}

func (c *candidacy) create(ctx context.Context, name string) (*coordinationv1beta1.LeaseCandidate, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timeout)
	defer cancel()
	candidate := &coordinationv1beta1.LeaseCandidate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: c.spec}
	candidate.Spec.RenewTime = ptr.To(metav1.NowMicro())
	c.presence(name).WriteTo(candidate)
	return c.client.Create(ctx, candidate, metav1.CreateOptions{})
}

// answer renews the candidate if the electing controller has asked whether this process is alive. It has asked if
// pingTime is later than renewTime. The answer is later than pingTime, even if the controller's clock is ahead.
func (c *candidacy) answer(ctx context.Context, candidate *coordinationv1beta1.LeaseCandidate) error {
	ping, renewed := candidate.Spec.PingTime, candidate.Spec.RenewTime
	if ping == nil || renewed != nil && !ping.After(renewed.Time) {
		return nil
	}
	now := metav1.NowMicro()
	if !now.After(ping.Time) {
		now = metav1.NewMicroTime(ping.Add(time.Microsecond))
	}
	candidate = candidate.DeepCopy()
	candidate.Spec.RenewTime = &now
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	_, err := c.client.Update(ctx, candidate, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the watch will bring the newer state
	}
	if err != nil {
		return fmt.Errorf("answer for the LeaseCandidate: %w", err)
	}
	return nil
}

// withdraw deletes the candidate of that name, and reports whether it is gone. It goes on after the end of ctx: the
// electing controller waits for a candidate that does not answer.
func (c *candidacy) withdraw(ctx context.Context, name string) (ok bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timeout)
	defer cancel()
	if err := c.client.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).V(2).Info("Cannot delete a LeaseCandidate that no process answers for", "candidate", name, "err", err)
		return false
	}
	return true
}

// sweepCandidates deletes the candidates for a Lease whose processes are known to be dead. The electing controller
// would wait for their answers.
func sweepCandidates(ctx context.Context, client CandidateClient, name string, dead func(lease.Presence) bool) error {
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for i := range list.Items {
		candidate := &list.Items[i]
		if p, some := lease.PresenceOn(candidate); !some || candidate.Spec.LeaseName != name || !dead(p) {
			continue
		}
		err := client.Delete(ctx, candidate.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(candidate.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
