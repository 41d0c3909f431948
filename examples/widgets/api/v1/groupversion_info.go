// Package v1 has version v1 of API group shop.example.com.
//
// +kubebuilder:object:generate=true
// +groupName=shop.example.com
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is that of the objects here.
	GroupVersion = schema.GroupVersion{Group: "shop.example.com", Version: "v1"}

	builder = runtime.NewSchemeBuilder(func(scheme *runtime.Scheme) error {
		scheme.AddKnownTypes(GroupVersion, &Widget{}, &WidgetList{})
		metav1.AddToGroupVersion(scheme, GroupVersion)
		return nil
	})

	// AddToScheme adds the types of the group to a scheme.
	AddToScheme = builder.AddToScheme
)
