package server

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/server/clusters"
)

// controllerFailed is the reason of Events about controllers. Those about terms have the reasons of election.Notice.
const controllerFailed = "ControllerFailed"

const (
	// eventBacklog is how many Events may wait to be written; more are dropped, for the log has it all.
	eventBacklog = 64
	// eventTimeout bounds the writing of one, lastEvents that of all that wait when the process stops.
	eventTimeout = 2 * time.Second
	lastEvents   = time.Second
	// longestMessage is what Events may hold, in bytes.
	longestMessage = 1024
)

// recorder writes Events about the shard's election Lease, from where operators look for them. client-go's broadcaster
// does not say when it has ended; of it we use what it decides: what is the same again, and what is too much.
type recorder struct {
	events     corev1client.EventInterface
	lease      corev1.ObjectReference
	source     corev1.EventSource
	correlator *record.EventCorrelator
	queue      chan *corev1.Event
	// uid is the Lease's, as the elector last told it: kubectl describe asks for Events by it.
	uid atomic.Pointer[types.UID]
}

func newRecorder(events corev1client.EventInterface, cfg election.Config, replica string) *recorder {
	return &recorder{
		events:     events,
		lease:      corev1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: cfg.Namespace, Name: cfg.Name},
		source:     corev1.EventSource{Component: "regent", Host: replica},
		correlator: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{SpamKeyFunc: spamKey}),
		queue:      make(chan *corev1.Event, eventBacklog),
	}
}

// spamKey is what is limited together: a controller that fails again and again must not crowd out the lease's own Events.
func spamKey(e *corev1.Event) string { return e.Source.Host + "/" + e.Reason }

// notify takes what the elector tells.
func (r *recorder) notify(n election.Notice) {
	r.uid.Store(&n.Lease)
	r.record(n.Reason, n.Warning, n.Message)
}

// record queues an Event about the Lease. It never blocks.
func (r *recorder) record(reason string, warning bool, message string) {
	now := metav1.Now()
	lease := r.lease
	if uid := r.uid.Load(); uid != nil {
		lease.UID = *uid
	}
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: r.lease.Namespace, Name: fmt.Sprintf("%s.%x", r.lease.Name, now.UnixNano())},
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

// run writes Events until ctx ends, and then what is left in the queue, for at most lastEvents.
func (r *recorder) run(ctx context.Context) {
	ctx = clusters.With(ctx, clusters.SystemAdmin)
	for ctx.Err() == nil {
		select {
		case event := <-r.queue:
			r.write(ctx, event)
		case <-ctx.Done():
		}
	}
	for began := time.Now(); time.Since(began) < lastEvents; {
		select {
		case event := <-r.queue:
			r.write(ctx, event)
		default:
			return
		}
	}
}

// write tries once: an Event that comes late because the store was away would not be true any more.
func (r *recorder) write(ctx context.Context, event *corev1.Event) {
	logger := klog.FromContext(ctx)
	result, err := r.correlator.EventCorrelate(event)
	if err != nil {
		logger.V(2).Info("Event not correlated", "reason", event.Reason, "err", err)
		return
	}
	if result.Skip {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventTimeout) // one that is on its way arrives
	defer cancel()
	var written *corev1.Event
	if result.Event.Count > 1 {
		written, err = r.events.PatchWithEventNamespaceWithContext(ctx, result.Event, result.Patch)
	}
	if result.Event.Count <= 1 || apierrors.IsNotFound(err) {
		result.Event.ResourceVersion = ""
		written, err = r.events.CreateWithEventNamespaceWithContext(ctx, result.Event)
	}
	if err != nil {
		logger.V(2).Info("Event not written", "reason", event.Reason, "err", err)
		return
	}
	r.correlator.UpdateState(written)
}
