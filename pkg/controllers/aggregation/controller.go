// Package aggregation fills aggregated ClusterRoles: one with an aggregationRule has the rules of the ClusterRoles of
// its logical cluster that the rule selects. What users write into its rules is overwritten.
//
// The built-in roles admin, edit and view are not stored. A user who is authorized by them gets what is aggregated to
// them without this controller.
package aggregation

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/bootstrap"
	"github.com/regent-project/regent/pkg/controllers/loop"
)

const (
	name    = "aggregation"
	workers = 2
)

// Descriptor describes the controller to a registry.
func Descriptor() controllers.Descriptor {
	return controllers.Descriptor{Name: name, Needs: []string{bootstrap.Name}, New: construct}
}

// controller reconciles aggregated ClusterRoles.
type controller struct {
	*loop.Loop[clusters.Key]
	roles *clusters.Informer[*rbacv1.ClusterRole]
	kube  kubernetes.Interface
}

func construct(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
	c := &controller{roles: deps.Informers.ClusterRoles, kube: deps.Clients.Kube}
	c.Loop = loop.New(deps.Range, name, workers, c.reconcile)
	c.Needs(func(key clusters.Key) bool { return c.due(key) != nil })
	loop.Watch(c.Loop, c.roles, c.aggregating)
	return c, nil
}

// aggregating returns the keys of the roles that may take in another: all aggregated roles of its cluster, which are
// few.
func (c *controller) aggregating(role *rbacv1.ClusterRole) (keys []clusters.Key) {
	for _, into := range c.roles.ByIndex(controllers.ByAggregating, clusters.KeyOf(role).Cluster.String()) {
		keys = append(keys, clusters.KeyOf(into))
	}
	return keys
}

// due returns the role as it should be written, or nil if it is as it should be.
func (c *controller) due(key clusters.Key) *rbacv1.ClusterRole {
	role, ok := c.roles.Get(key)
	if !ok || role.AggregationRule == nil || role.DeletionTimestamp != nil {
		return nil
	}
	return filled(role, c.roles.List(key.Cluster))
}

func (c *controller) reconcile(ctx context.Context, key clusters.Key) error {
	role := c.due(key)
	if role == nil {
		return nil
	}
	_, err := c.kube.RbacV1().ClusterRoles().Update(clusters.With(ctx, key.Cluster), role, metav1.UpdateOptions{FieldManager: name})
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the informer has delivered the change, or will, and queue the key again
	}
	return fmt.Errorf("fill aggregated role %s: %w", key, err)
}

var _ controllers.Reporter = (*controller)(nil)
