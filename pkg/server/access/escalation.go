package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/kcp-dev/logicalcluster/v3"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/regent-project/regent/pkg/clusters"
)

// Escalation refuses to create and change roles and bindings that would give anybody a right which the writer does not
// have, as Kubernetes does. The verb escalate on a role allows to give it any rules, the verb bind to bind it to
// anybody. Members of system:masters may do both.
//
// Escalation judges by what is stored when it is asked: by a cache that is a little behind, a role that has just got
// more rules could still be bound by somebody who has the old ones only.
type Escalation struct {
	// Stored reads the policy of a cluster from storage.
	Stored func(ctx context.Context, cluster logicalcluster.Name) (Policy, error)
	// Authorizer decides about the verbs escalate and bind.
	Authorizer authorizer.Authorizer
}

// Handles implements admission.Interface.
func (e *Escalation) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update
}

// Validate implements admission.ValidationInterface.
func (e *Escalation) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().Group != rbacv1.GroupName {
		return nil
	}
	if isMaster(a.GetUserInfo()) {
		return nil
	}
	cluster, ok := clusters.From(ctx)
	if !ok {
		return admission.NewForbidden(a, clusters.ErrNoCluster)
	}
	g := grantOf(a.GetObject())
	if g == nil {
		return admission.NewForbidden(a, fmt.Errorf("a %T is neither a role nor a binding", a.GetObject()))
	}
	if old := grantOf(a.GetOldObject()); old != nil {
		if reflect.DeepEqual(g, old) {
			return nil // only finalizers and the like have changed
		}
		g.aggregation = cmp.Or(g.aggregation, old.aggregation)
	}
	allowed, err := e.mayAnyway(ctx, a, g)
	if err != nil || allowed {
		return err
	}
	policy, err := e.Stored(ctx, cluster)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("cannot read the roles and bindings of logical cluster %s: %w", cluster, err))
	}
	return e.judge(a, policy, cluster, g)
}

// mayAnyway asks for the verb that allows what the writer could not do without it.
func (e *Escalation) mayAnyway(ctx context.Context, a admission.Attributes, g *grant) (bool, error) {
	attr := authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: "escalate", APIGroup: rbacv1.GroupName, APIVersion: a.GetResource().Version,
		Namespace: a.GetNamespace(), Resource: a.GetResource().Resource, Name: a.GetName(), ResourceRequest: true,
	}
	if g.ref != nil {
		attr.Verb, attr.Resource, attr.Name = "bind", resourceOf(g.ref), g.ref.Name
	}
	decision, _, err := e.Authorizer.Authorize(ctx, attr)
	if err != nil {
		return false, apierrors.NewInternalError(fmt.Errorf("cannot tell whether %s is allowed: %w", attr.Verb, err))
	}
	return decision == authorizer.DecisionAllow, nil
}

// judge compares what is granted with what the writer may do.
func (e *Escalation) judge(a admission.Attributes, policy Policy, cluster logicalcluster.Name, g *grant) error {
	rules := g.rules
	switch {
	case g.ref != nil:
		parts, err := (view{Policy: policy, cluster: cluster}).rulesOf(g.ref, a.GetNamespace())
		if err != nil {
			return apierrors.NewNotFound(rbacv1.Resource(resourceOf(g.ref)), g.ref.Name)
		}
		rules = slices.Concat(parts...)
	case g.aggregation != nil: // it may get any rules later
		rules = builtIn.roles[AdminRole].Rules
	}
	lacking, err := exceeding(policy, cluster, a.GetUserInfo(), a.GetNamespace(), rules)
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if len(lacking) == 0 {
		return nil
	}
	who := a.GetUserInfo()
	return admission.NewForbidden(a, fmt.Errorf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%w",
		who.GetName(), who.GetGroups(), joinFirst(described(lacking))))
}

// resourceOf returns the resource of the role that a binding refers to.
func resourceOf(ref *rbacv1.RoleRef) string {
	if ref.Kind == kindRole {
		return "roles"
	}
	return "clusterroles"
}

// maxDescribed is how many rules, or missing roles, a refusal names.
const maxDescribed = 20

func described(rules []rbacv1.PolicyRule) []error {
	errs := make([]error, 0, len(rules))
	for n := range rules {
		errs = append(errs, errors.New(rules[n].String()))
	}
	return errs
}

// joinFirst joins the first errors, and says how many more there are. It returns nil if there are none.
func joinFirst(errs []error) error {
	if more := len(errs) - maxDescribed; more > 0 {
		errs = append(slices.Clone(errs[:maxDescribed]), fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}

// grant is what a role or a binding gives.
type grant struct {
	rules       []rbacv1.PolicyRule
	aggregation *rbacv1.AggregationRule // nil: it takes in no other roles
	labels      map[string]string       // other roles may take it in by them

	ref      *rbacv1.RoleRef // nil: a role
	subjects []rbacv1.Subject
}

func grantOf(obj any) *grant {
	switch o := obj.(type) {
	case *rbacv1.Role:
		return &grant{rules: o.Rules}
	case *rbacv1.ClusterRole:
		return &grant{rules: o.Rules, aggregation: o.AggregationRule, labels: o.Labels}
	case *rbacv1.RoleBinding:
		return &grant{ref: &o.RoleRef, subjects: o.Subjects}
	case *rbacv1.ClusterRoleBinding:
		return &grant{ref: &o.RoleRef, subjects: o.Subjects}
	}
	return nil
}

var _ admission.ValidationInterface = (*Escalation)(nil)
