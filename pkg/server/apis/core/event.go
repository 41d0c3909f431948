package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/regent-project/regent/pkg/clusters"
	newevents "github.com/regent-project/regent/pkg/server/apis/events"
	"github.com/regent-project/regent/pkg/server/apis/resource"
)

const (
	maxReportingInstance = 128
	maxAction            = 128
	maxReason            = 128
	maxNote              = 1024
)

var events = resource.Definition[*corev1.Event]{
	GVR:        corev1.SchemeGroupVersion.WithResource("events"),
	Namespaced: true,
	ShortNames: []string{"ev"},
	List:       &corev1.EventList{},
	// Events are written often, expire by themselves, and are seldom read.
	Stored:         resource.Stored[*corev1.Event]{Uncached: true, TTL: uint64(clusters.EventTTL.Seconds())},
	Name:           validation.NameIsDNSSubdomain,
	CreateOnUpdate: true,
	Unconditional:  true,
	Validate:       validateEvent,
	Fields:         selectableEventFields,
	Columns:        eventColumns,
	Views: []resource.View[*corev1.Event]{{
		GroupVersion:   eventsv1.SchemeGroupVersion,
		Object:         &eventsv1.Event{},
		List:           &eventsv1.EventList{},
		Convert:        newevents.AddConversions,
		ValidateCreate: validateNewEvent,
		ValidateUpdate: validateNewEventUpdate,
	}},
}

func selectableEventFields(e *corev1.Event) fields.Set {
	source := e.Source.Component
	if source == "" {
		source = e.ReportingController
	}
	return fields.Set{
		"involvedObject.kind":            e.InvolvedObject.Kind,
		"involvedObject.namespace":       e.InvolvedObject.Namespace,
		"involvedObject.name":            e.InvolvedObject.Name,
		"involvedObject.uid":             string(e.InvolvedObject.UID),
		"involvedObject.apiVersion":      e.InvolvedObject.APIVersion,
		"involvedObject.resourceVersion": e.InvolvedObject.ResourceVersion,
		"involvedObject.fieldPath":       e.InvolvedObject.FieldPath,
		"reason":                         e.Reason,
		"reportingComponent":             e.ReportingController,
		"source":                         source,
		"type":                           e.Type,
	}
}

// validateEvent checks the rules for all events. An event about an object without a namespace must be in "default", and
// one in the style of events.k8s.io may be in "kube-system", too. An event about an object with a namespace must be
// there, unless it is in that style, as in Kubernetes: its reporter may write where it has the right to.
func validateEvent(e *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	involved, isNew := e.InvolvedObject.Namespace, !e.EventTime.IsZero()
	alone := involved == "" && e.Namespace != metav1.NamespaceDefault && !(isNew && e.Namespace == metav1.NamespaceSystem)
	if alone || involved != "" && involved != e.Namespace && !isNew {
		errs = append(errs, field.Invalid(field.NewPath("involvedObject", "namespace"), involved, "does not match event.namespace"))
	}
	if !isNew {
		return errs
	}
	// Only events in the style of events.k8s.io have this time.
	return append(errs, validateReport(e)...)
}

// validateReport checks the fields that events in the style of events.k8s.io must have.
func validateReport(e *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	controller := field.NewPath("reportingController")
	if e.ReportingController == "" {
		errs = append(errs, field.Required(controller, ""))
	}
	for _, msg := range utilvalidation.IsQualifiedName(e.ReportingController) {
		errs = append(errs, field.Invalid(controller, e.ReportingController, msg))
	}
	errs = append(errs, requireShort("reportingInstance", e.ReportingInstance, maxReportingInstance)...)
	errs = append(errs, requireShort("action", e.Action, maxAction)...)
	errs = append(errs, requireShort("reason", e.Reason, maxReason)...)
	if len(e.Message) > maxNote {
		errs = append(errs, field.Invalid(field.NewPath("message"), "", fmt.Sprintf("can have at most %d characters", maxNote)))
	}
	return errs
}

func requireShort(name, value string, limit int) field.ErrorList {
	path := field.NewPath(name)
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	if len(value) > limit {
		return field.ErrorList{field.Invalid(path, "", fmt.Sprintf("can have at most %d characters", limit))}
	}
	return nil
}

// validateNewEvent checks the additional rules for new events of events.k8s.io.
func validateNewEvent(e *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	if e.EventTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
		errs = append(errs, validateReport(e)...)
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		errs = append(errs, field.Invalid(field.NewPath("type"), e.Type, "has invalid value, must be Normal or Warning"))
	}
	if e.FirstTimestamp != (metav1.Time{}) {
		errs = append(errs, field.Invalid(field.NewPath("firstTimestamp"), e.FirstTimestamp, "needs to be unset"))
	}
	if e.LastTimestamp != (metav1.Time{}) {
		errs = append(errs, field.Invalid(field.NewPath("lastTimestamp"), e.LastTimestamp, "needs to be unset"))
	}
	if e.Count != 0 {
		errs = append(errs, field.Invalid(field.NewPath("count"), e.Count, "needs to be unset"))
	}
	if e.Source != (corev1.EventSource{}) {
		errs = append(errs, field.Invalid(field.NewPath("source"), e.Source, "needs to be unset"))
	}
	return append(errs, validateSeries(e.Series)...)
}

func validateSeries(s *corev1.EventSeries) field.ErrorList {
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	if s.Count < 2 {
		errs = append(errs, field.Invalid(field.NewPath("series", "count"), s.Count, "should be at least 2"))
	}
	if s.LastObservedTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("series", "lastObservedTime"), ""))
	}
	return errs
}

// validateNewEventUpdate refuses changes of an event, except of its series and its metadata.
func validateNewEventUpdate(e, old *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	keep := func(now, before any, path ...string) {
		errs = append(errs, validation.ValidateImmutableField(now, before, field.NewPath(path[0], path[1:]...))...)
	}
	keep(e.InvolvedObject, old.InvolvedObject, "involvedObject")
	keep(e.Reason, old.Reason, "reason")
	keep(e.Message, old.Message, "message")
	keep(e.Source, old.Source, "source")
	keep(e.FirstTimestamp, old.FirstTimestamp, "firstTimestamp")
	keep(e.LastTimestamp, old.LastTimestamp, "lastTimestamp")
	keep(e.Count, old.Count, "count")
	keep(e.Type, old.Type, "type")
	// The time is stored in microseconds, but clients may send it more precisely.
	if !e.EventTime.Truncate(1000).Equal(old.EventTime.Truncate(1000)) {
		keep(e.EventTime, old.EventTime, "eventTime")
	}
	keep(e.Action, old.Action, "action")
	if !equality.Semantic.DeepEqual(e.Related, old.Related) {
		keep(e.Related, old.Related, "related")
	}
	keep(e.ReportingController, old.ReportingController, "reportingController")
	keep(e.ReportingInstance, old.ReportingInstance, "reportingInstance")
	return append(errs, validateSeries(e.Series)...)
}
