package server

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/election"
)

// controllerFailed is the reason of Events about controllers. Events about terms have the reasons of election.Notice.
const controllerFailed = "ControllerFailed"

const (
	// eventBacklog is how many Events may wait to be written. Further ones are dropped: the log has them all.
	eventBacklog = 64
	// eventTimeout bounds the writing of one Event. lastEvents bounds the writing of those that wait when the
	// process stops.
	eventTimeout = 2 * time.Second
	lastEvents   = time.Second
	// eventLife is how long the recorder tries to write an Event, with a pause of eventPause. So Events of an
	// outage are written after it.
	eventLife  = 10 * time.Minute
	eventPause = 2 * time.Second
	// longestMessage is the maximum length of an Event's message, in bytes.
	longestMessage = 1024
)

// recorder writes Events about the Lease of one of the shard's elections, or those of its ranges, where operators look
// for them. It does not use client-go's broadcaster, whose end cannot be awaited, but client-go's correlator, which
// aggregates and limits Events.
type recorder struct {
	events     corev1client.EventInterface
	lease      corev1.ObjectReference
	source     corev1.EventSource
	correlator *record.EventCorrelator
	queue      chan *corev1.Event
	// uids are those of the Leases, as the electors last reported them, by name. kubectl describe selects Events by
	// them.
	uids sync.Map
}

func newRecorder(events corev1client.EventInterface, namespace, lease, replica string) *recorder {
	return &recorder{
		events:     events,
		lease:      corev1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: namespace, Name: lease},
		source:     corev1.EventSource{Component: "regent", Host: replica},
		correlator: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{SpamKeyFunc: spamKey}),
		queue:      make(chan *corev1.Event, eventBacklog),
	}
}

// spamKey says which Events share a rate limit. A controller that keeps failing must not crowd out the Lease's own
// Events.
func spamKey(e *corev1.Event) string { return e.Source.Host + "/" + e.Reason }

// notify records a notice of the elector.
func (r *recorder) notify(n election.Notice) {
	r.uids.Store(n.Name, n.Lease)
	r.recordOn(n.Name, n.Reason, n.Warning, n.Message)
}

// record queues an Event about the election's Lease. The message continues "replica <name>". record never blocks.
func (r *recorder) record(reason string, warning bool, message string) {
	r.recordOn(r.lease.Name, reason, warning, message)
}

// recordOn is record for the Lease of that name: with ranges there are several.
func (r *recorder) recordOn(name, reason string, warning bool, message string) {
	now := metav1.Now()
	message = "replica " + r.source.Host + " " + message
	lease := r.lease
	lease.Name = name
	if uid, ok := r.uids.Load(name); ok {
		lease.UID = uid.(types.UID)
	}
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: r.lease.Namespace, Name: fmt.Sprintf("%s.%x", name, now.UnixNano())},
		InvolvedObject: lease,
		Type:           corev1.EventTypeNormal,
		Reason:         reason,
		Message:        strings.ToValidUTF8(message[:min(len(message), longestMessage)], ""),
		Source:         r.source,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		ReportingController: r.source.Component, ReportingInstance: r.source.Host,
	}
	if warning {
		event.Type = corev1.EventTypeWarning
	}
	select {
	case r.queue <- event:
	default:
	}
}

// run writes Events until ctx ends. Then it writes those that are left in the queue, for at most lastEvents.
func (r *recorder) run(ctx context.Context) {
	ctx = clusters.With(ctx, clusters.SystemAdmin)
	for ctx.Err() == nil {
		select {
		case event := <-r.queue:
			result := r.correlate(ctx, event)
			for !r.write(ctx, result) && time.Since(event.FirstTimestamp.Time) < eventLife && ctx.Err() == nil {
				select {
				case <-time.After(eventPause):
				case <-ctx.Done():
				}
			}
		case <-ctx.Done():
		}
	}
	for began := time.Now(); time.Since(began) < lastEvents; {
		select {
		case event := <-r.queue:
			r.write(ctx, r.correlate(ctx, event))
		default:
			return
		}
	}
}

// correlate returns how to write an Event, or nil if it must not be written.
func (r *recorder) correlate(ctx context.Context, event *corev1.Event) *record.EventCorrelateResult {
	result, err := r.correlator.EventCorrelate(event)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Event not correlated", "reason", event.Reason, "err", err)
		return nil
	}
	if result.Skip {
		return nil
	}
	return result
}

// write reports whether the recorder is done with an Event, because it is written or can never be.
func (r *recorder) write(ctx context.Context, result *record.EventCorrelateResult) (final bool) {
	if result == nil {
		return true
	}
	// the end of ctx does not cut off a write
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventTimeout)
	defer cancel()
	var written *corev1.Event
	var err error
	if result.Event.Count > 1 {
		written, err = r.events.PatchWithEventNamespaceWithContext(ctx, result.Event, result.Patch)
	}
	if result.Event.Count <= 1 || apierrors.IsNotFound(err) {
		result.Event.ResourceVersion = ""
		written, err = r.events.CreateWithEventNamespaceWithContext(ctx, result.Event)
	}
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Event not written", "reason", result.Event.Reason, "err", err)
		return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsAlreadyExists(err)
	}
	r.correlator.UpdateState(written)
	return true
}
