package core

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/regent-project/regent/pkg/server/apis/resource"
)

var eventColumns = []resource.Column[*corev1.Event]{
	{Name: "Last Seen", Description: "When it was last seen", Cell: func(e *corev1.Event) any { return lastSeen(e) }},
	{Name: "Type", Description: corev1.Event{}.SwaggerDoc()["type"], Cell: func(e *corev1.Event) any { return e.Type }},
	{Name: "Reason", Description: corev1.Event{}.SwaggerDoc()["reason"], Cell: func(e *corev1.Event) any { return e.Reason }},
	{Name: "Object", Description: corev1.Event{}.SwaggerDoc()["involvedObject"], Cell: func(e *corev1.Event) any { return about(e) }},
	{Name: "Subobject", Description: "The part of the object", Wide: true, Cell: func(e *corev1.Event) any { return e.InvolvedObject.FieldPath }},
	{Name: "Source", Description: "What reported it", Wide: true, Cell: func(e *corev1.Event) any { return source(e) }},
	{Name: "Message", Description: corev1.Event{}.SwaggerDoc()["message"], Cell: func(e *corev1.Event) any { return strings.TrimSpace(e.Message) }},
	{Name: "First Seen", Description: "When it was first seen", Wide: true, Cell: func(e *corev1.Event) any { return firstSeen(e) }},
	{Name: "Count", Description: "How often it was seen", Wide: true, Type: "integer", Cell: func(e *corev1.Event) any { return count(e) }},
	wide(resource.Name[*corev1.Event]()),
}

func wide(c resource.Column[*corev1.Event]) resource.Column[*corev1.Event] {
	c.Wide = true
	return c
}

// firstTime returns the event's time. Events in the style of events.k8s.io have it in eventTime.
func firstTime(e *corev1.Event) time.Time {
	if !e.EventTime.IsZero() {
		return e.EventTime.Time
	}
	return e.FirstTimestamp.Time
}

func firstSeen(e *corev1.Event) string { return resource.Since(firstTime(e)) }

func lastSeen(e *corev1.Event) string {
	switch {
	case e.Series != nil:
		return resource.Since(e.Series.LastObservedTime.Time)
	case !e.LastTimestamp.IsZero():
		return resource.Since(e.LastTimestamp.Time)
	default:
		return resource.Since(firstTime(e))
	}
}

func count(e *corev1.Event) int64 {
	switch {
	case e.Series != nil:
		return int64(e.Series.Count)
	case e.Count > 1:
		return int64(e.Count)
	default:
		return 1
	}
}

func about(e *corev1.Event) string {
	kind := strings.ToLower(e.InvolvedObject.Kind)
	if e.InvolvedObject.Name == "" {
		return kind
	}
	return kind + "/" + e.InvolvedObject.Name
}

func source(e *corev1.Event) string {
	component, instance := e.Source.Component, e.Source.Host
	if component == "" {
		component = e.ReportingController
	}
	if instance == "" {
		instance = e.ReportingInstance
	}
	if instance == "" {
		return component
	}
	return fmt.Sprintf("%s, %s", component, instance)
}
