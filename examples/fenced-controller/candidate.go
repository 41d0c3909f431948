package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/fence"
)

// candidate stands for election once. It is not for a second time: client-go's elector may lose its lease and take it
// back without a callback, in a new epoch, and whoever goes on then works with what was true in the old one. So the
// process ends with its term, and its supervisor (systemd, a kubelet) starts another, with another identity.
type candidate struct {
	options
	// election is for the Lease and nothing else, work for everything else. Only work is fenced.
	election, work kubernetes.Interface
	// current is the term to which work's writes belong.
	current fence.Current
}

func newCandidate(config *rest.Config, o options) (*candidate, error) {
	c := &candidate{options: o}
	var err error
	if c.election, err = kubernetes.NewForConfig(electionConfig(config)); err != nil {
		return nil, err
	}
	config.Wrap(fence.Transport(c.current.Source)) // the one line: every write from here on proves its term
	if c.work, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	return c, nil
}

// electionConfig is for the client with which the Lease is acquired. It is not fenced, since nobody has the token of a
// term before it has begun. It shares nothing with the work, whose load must not delay a renewal: no rate limit, and a
// dialer of its own, without which client-go shares connections between equal configurations.
func electionConfig(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.Dial = (&net.Dialer{}).DialContext
	return config
}

var errLost = errors.New("the lease is lost: to be started again, as a new candidate")

// run stands for election and works while it leads, until ctx ends (nil) or the term (an error). All of it has ended
// when it returns.
func (c *candidate) run(ctx context.Context) error {
	led := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: c.lease,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: c.namespace, Name: c.lease},
			Client:     c.election.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: c.identity},
		},
		LeaseDuration: c.duration, RenewDeadline: c.deadline, RetryPeriod: c.retry,
		Callbacks: leaderelection.LeaderCallbacks{
			// client-go does not wait for this callback when it stops: the work is done here below, and is
			// waited for.
			OnStartedLeading: func(context.Context) { close(led) },
			OnStoppedLeading: func() {},
		},
		// Not ReleaseOnCancel: it releases while the work still ends, and, if somebody else has taken the lease
		// since the elector last looked, it reads that new Lease and releases it.
	})
	if err != nil {
		return err
	}
	// One context for both: each ends when the other does. The elector returns when it no longer leads.
	running, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer stop()
		elector.Run(running)
	}()
	select {
	case <-ended: // without having led, or no longer
	case <-led:
		err = c.term(running)
	}
	stop()
	<-ended
	switch {
	case ctx.Err() != nil && !fence.IsFenced(err):
		return nil // as it was asked to
	case err == nil:
		return errLost
	default:
		return err
	}
}

// term works for one term.
func (c *candidate) term(ctx context.Context) error {
	// Only now that the lease is ours, and only once: the token is that of the term whose work begins here. It is
	// not read again, not even after a refusal. A token that follows the Lease proves nothing.
	reading, done := context.WithTimeout(ctx, c.deadline) // a leader that hangs here would keep the lease
	defer done()
	lease, err := c.election.CoordinationV1().Leases(c.namespace).Get(reading, c.lease, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the Lease of the term that has begun: %w", err)
	}
	// The epoch is spec.leaseTransitions: 0 if client-go has created the Lease, as it does for the very first
	// leader, and again if the Lease was deleted since. So it is no token by itself: the uid and the holder belong
	// to it.
	token, err := fence.Acquired(lease, c.identity)
	if err != nil {
		return err
	}
	c.current.Set(token)
	// When the work has ended, and not in OnStoppedLeading. A write that is on its way then was decided in this
	// term: it keeps the term's token, and the server, which alone can tell, lets it pass or refuses it.
	defer c.current.Clear()

	klog.FromContext(ctx).Info("Leading", "epoch", token.Epoch, "holder", token.Holder)
	h := &heartbeat{configMaps: c.work.CoreV1().ConfigMaps(c.namespace), options: c.options, token: token}
	return h.run(ctx)
}
