package serviceaccount

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
)

// lack is what a namespace lacks.
type lack struct {
	account        *corev1.ServiceAccount // to be created
	create, update *corev1.ConfigMap
	// remove is wrong and immutable: it is made again when it has gone.
	remove *corev1.ConfigMap
}

func (l lack) any() bool {
	return l.account != nil || l.create != nil || l.update != nil || l.remove != nil
}

// outdated returns the built-in ConfigMap of a namespace with a description, so that it is stored, if its authorities
// are others than when the logical cluster was made. So who watches it hears of them.
func outdated(in clusters.BuiltIn, namespace string) *corev1.ConfigMap {
	if !in.IsOutdated() {
		return nil
	}
	for _, published := range in.ConfigMaps() {
		if published.Namespace == namespace {
			metav1.SetMetaDataAnnotation(&published.ObjectMeta, "kubernetes.io/description", "The certificate authorities by which clients know this API.")
			return published
		}
	}
	return nil
}

// lackOf returns what a namespace lacks. hasAccount says whether it has the account, published is its ConfigMap, or
// nil.
func lackOf(namespace *corev1.Namespace, hasAccount bool, published *corev1.ConfigMap, rootCA string) lack {
	if namespace.DeletionTimestamp != nil || namespace.Status.Phase == corev1.NamespaceTerminating {
		return lack{}
	}
	var l lack
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace.Name, Name: name}
	}
	if !hasAccount {
		l.account = &corev1.ServiceAccount{ObjectMeta: meta(clusters.DefaultServiceAccount)}
	}
	data := map[string]string{clusters.RootCAKey: rootCA}
	switch {
	case published == nil, clusters.IsTombstone(published):
		l.create = &corev1.ConfigMap{ObjectMeta: meta(clusters.RootCAConfigMap), Data: data}
	case published.DeletionTimestamp != nil: // it is made again when it has gone
	case maps.Equal(published.Data, data) && len(published.BinaryData) == 0:
	case published.Immutable != nil && *published.Immutable:
		l.remove = published
	default:
		l.update = published.DeepCopy()
		l.update.Data, l.update.BinaryData = data, nil
	}
	return l
}
