package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// WidgetSpec is what is wanted.
//
// +kubebuilder:validation:XValidation:rule="self.color != 'red' || self.replicas <= 5",message="there is not so much
// red"
type WidgetSpec struct {
	// Color is what each part says.
	//
	// +kubebuilder:default=white
	// +kubebuilder:validation:MaxLength=20
	Color string `json:"color,omitempty"`

	// Replicas is how many parts there are to be.
	//
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Replicas *int32 `json:"replicas,omitempty"`
}

// WidgetStatus is what there is.
type WidgetStatus struct {
	// ObservedGeneration is that of the spec by which the parts were made.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Replicas is how many parts there are.
	Replicas int32 `json:"replicas"`

	// Selector selects the parts.
	Selector string `json:"selector,omitempty"`

	// Conditions has Ready.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Widget is a number of ConfigMaps of one color.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=wd,categories=shop
// +kubebuilder:selectablefield:JSONPath=.spec.color
// +kubebuilder:printcolumn:name="Color",type=string,JSONPath=`.spec.color`
// +kubebuilder:printcolumn:name="Parts",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
type Widget struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is what is wanted.
	//
	// +required
	Spec WidgetSpec `json:"spec,omitzero"`

	// Status is what there is.
	//
	// +optional
	Status WidgetStatus `json:"status,omitzero"`
}

// WidgetList is a list of Widgets.
//
// +kubebuilder:object:root=true
type WidgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Widget `json:"items"`
}
