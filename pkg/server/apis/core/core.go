// Package core serves core/v1: namespaces, configmaps, secrets and events.
package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/regent-project/regent/pkg/server/apis/resource"
)

// AddToScheme registers the served types, their defaults and selectable fields.
func AddToScheme(scheme *runtime.Scheme) error {
	gv := corev1.SchemeGroupVersion
	resource.AddSelf(
		scheme, gv,
		&corev1.Namespace{}, &corev1.NamespaceList{},
		&corev1.ConfigMap{}, &corev1.ConfigMapList{},
		&corev1.Secret{}, &corev1.SecretList{},
		&corev1.Event{}, &corev1.EventList{},
	)
	scheme.AddTypeDefaultingFunc(&corev1.Namespace{}, func(obj any) { setNamespaceDefaults(obj.(*corev1.Namespace)) })
	scheme.AddTypeDefaultingFunc(&corev1.Secret{}, func(obj any) { setSecretDefaults(obj.(*corev1.Secret)) })
	for kind, labels := range map[string][]string{
		"Namespace": {"status.phase"},
		"ConfigMap": nil,
		"Secret":    {"type"},
		"Event":     eventFields,
	} {
		if err := resource.AddFieldLabels(scheme, gv.WithKind(kind), labels...); err != nil {
			return fmt.Errorf("field labels of %s: %w", kind, err)
		}
	}
	return nil
}

// Storage returns what is served under v1, and apart from it the events of events.k8s.io/v1, which are the same objects
// in the same storage.
func Storage(typer runtime.ObjectTyper, getter generic.RESTOptionsGetter) (served map[string]rest.Storage, events rest.Storage, err error) {
	namespaces, err := newNamespaces(typer, getter)
	if err != nil {
		return nil, nil, err
	}
	configMaps, err := configMaps.Store(typer, getter)
	if err != nil {
		return nil, nil, err
	}
	secrets, err := secrets.Store(typer, getter)
	if err != nil {
		return nil, nil, err
	}
	coreEvents, err := eventsOf("").Store(typer, getter)
	if err != nil {
		return nil, nil, err
	}
	served = map[string]rest.Storage{"configmaps": configMaps, "secrets": secrets, "events": coreEvents}
	for name, storage := range namespaces {
		served[name] = storage
	}
	return served, eventsOf(newEvents).Share(typer, coreEvents), nil
}
