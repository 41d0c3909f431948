package main

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/sample-apiserver/pkg/apis/wardle/v1alpha1"
	clientset "k8s.io/sample-apiserver/pkg/generated/clientset/versioned"
	informers "k8s.io/sample-apiserver/pkg/generated/informers/externalversions/wardle/v1alpha1"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/control/loop"
	"github.com/regent-project/regent/pkg/election/leader"
)

// stamps is a controller: it writes onto each Flunder in which term it was last seen.
func stamps(config *rest.Config, flunders informers.FlunderInformer) control.Descriptor[election.Term] {
	informer := flunders.Informer() // it starts with the process, and is warm on standbys
	return control.Descriptor[election.Term]{Name: "stamps", New: func(ctx context.Context, term election.Term) (control.Controller, error) {
		client, err := clientset.NewForConfig(leader.ForTerm(ctx, config, term)) // each write proves its term
		if err != nil {
			return nil, err
		}
		stamp := fmt.Sprint(term.Epoch())
		l := loop.New("stamps", 2, func(ctx context.Context, key cache.ObjectName) error {
			f, err := flunders.Lister().Flunders(key.Namespace).Get(key.Name)
			if apierrors.IsNotFound(err) || err == nil && f.Labels["term"] == stamp {
				return nil
			}
			if err != nil {
				return err
			}
			f = f.DeepCopy()
			metav1.SetMetaDataLabel(&f.ObjectMeta, "term", stamp)
			if _, err := client.WardleV1alpha1().Flunders(key.Namespace).Update(ctx, f, metav1.UpdateOptions{}); err != nil {
				return err // it is tried again later
			}
			klog.FromContext(ctx).Info("Stamped", "flunder", key, "term", stamp)
			return nil
		})
		loop.Watch(l, informer, func(f *v1alpha1.Flunder) []cache.ObjectName { return []cache.ObjectName{cache.MetaObjectToName(f)} })
		return l, nil
	}}
}
