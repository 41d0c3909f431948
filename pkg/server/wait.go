package server

import (
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"
)

// firstReminder is how long waitFor waits before it first logs what it waits for. Each further pause is twice as long.
const firstReminder = 10 * time.Second

// waitFor waits until all channels are closed, and returns false if ctx ends first. It logs the channels that take
// long.
func waitFor(ctx context.Context, all map[string]<-chan struct{}) bool {
	began, reminder := time.Now(), firstReminder
	timer := time.NewTimer(reminder)
	defer timer.Stop()
	for _, c := range all {
		for waiting := true; waiting; {
			select {
			case <-c:
				waiting = false
			case <-ctx.Done():
				return false
			case <-timer.C:
				klog.FromContext(ctx).Info("Still waiting, before controllers can run", "for", pending(all), "since", time.Since(began).Round(time.Second))
				reminder *= 2
				timer.Reset(reminder)
			}
		}
	}
	return true
}

// pending returns the names of the channels that are not closed, sorted.
func pending(all map[string]<-chan struct{}) []string {
	var names []string
	for name, c := range all {
		select {
		case <-c:
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
