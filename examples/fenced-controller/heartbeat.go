package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/fence"
)

// heartbeat is the work of one term: a ConfigMap that says who leads, and counts. It stands for any controller: it
// reads what is there, goes on from it, and takes for granted that it is alone. So the count never goes back, and never
// forks, only if no write of an earlier term commits after the first read of a later one.
type heartbeat struct {
	options
	configMaps corev1.ConfigMapInterface
	token      fence.Token
}

// timeout is that of a write.
const timeout = 30 * time.Second

// run returns when ctx ends, or with the error of a refused write. Nothing of it runs on then.
func (h *heartbeat) run(ctx context.Context) error {
	count, err := h.last(ctx)
	if err != nil {
		return fmt.Errorf("read where to go on: %w", err)
	}
	tick := time.NewTicker(h.period)
	defer tick.Stop()
	for ctx.Err() == nil {
		switch err := h.beat(ctx, count+1); {
		case fence.IsFenced(err):
			// The answer is final: whatever this process writes in its term will be refused.
			klog.FromContext(ctx).Info("Fenced", "epoch", h.token.Epoch, "count", count+1, "message", err.Error())
			return fmt.Errorf("fenced: %w", err)
		case err != nil:
			klog.FromContext(ctx).Error(err, "Not written, will be tried again", "count", count+1)
		default:
			count++
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return nil
}

// last returns the count of whoever led before.
func (h *heartbeat) last(ctx context.Context) (int, error) {
	found, err := h.configMaps.Get(ctx, h.lease, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(found.Data["count"])
}

// beat writes once. It was decided before it was called, and does not look at the end of the term again: like a slow
// reconcile, which has read its caches, computes and then writes, or a write that the network delays. However often a
// controller asks whether it still leads, there is a moment after the last time, and a process may be stopped in it for
// minutes. That is what the fence is for.
func (h *heartbeat) beat(ctx context.Context, count int) error {
	logger := klog.FromContext(ctx).V(4)
	logger.Info("Decided", "count", count)
	if h.think > 0 {
		<-time.After(h.think) // not ctx: see above
	}
	logger.Info("Writing", "count", count)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	// Server-side apply with force: no resourceVersion stands in the way of a write that comes too late.
	_, err := h.configMaps.Apply(ctx, applycorev1.ConfigMap(h.lease, h.namespace).WithData(map[string]string{
		"holder": h.token.Holder,
		"epoch":  strconv.FormatInt(h.token.Epoch, 10),
		"count":  strconv.Itoa(count),
	}), metav1.ApplyOptions{FieldManager: "fenced-controller", Force: true})
	if err != nil {
		return err
	}
	logger.Info("Wrote", "count", count)
	return nil
}
