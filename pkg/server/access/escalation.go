package access

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/kcp-dev/logicalcluster/v3"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/regent-project/regent/pkg/clusters"
)

// Escalation refuses to create and change roles and bindings that would give anybody a right which the writer does not have, as
// Kubernetes does. The verb escalate on a role allows to give it any rules, the verb bind to bind it to anybody. Members of
// system:masters may do both.
//
// Escalation judges by what is stored when it is asked: by a cache that is a little behind, a role that has just got more rules could
// still be bound by somebody who has the old ones only.
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
	who := a.GetUserInfo()
	if who != nil && slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		return nil
	}
	cluster, ok := clusters.From(ctx)
	if !ok || who == nil {
		return admission.NewForbidden(a, clusters.ErrNoCluster)
	}
	g := grantOf(a.GetObject())
	if g == nil {
		return admission.NewForbidden(a, fmt.Errorf("a %T is neither a role nor a binding", a.GetObject()))
	}
	if old := grantOf(a.GetOldObject()); old != nil {
		if g.same(old) {
			return nil // only finalizers and the like have changed
		}
		g.aggregates = g.aggregates || old.aggregates
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

// mayAnyway asks for the verb that allows what the writer could not do himself.
func (e *Escalation) mayAnyway(ctx context.Context, a admission.Attributes, g *grant) (bool, error) {
	attr := authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: "escalate", APIGroup: rbacv1.GroupName, APIVersion: a.GetResource().Version,
		Namespace: a.GetNamespace(), Resource: a.GetResource().Resource, Name: a.GetName(), ResourceRequest: true,
	}
	if g.ref != nil {
		attr.Verb, attr.Resource, attr.Name = "bind", "clusterroles", g.ref.Name
		if g.ref.Kind == "Role" {
			attr.Resource = "roles"
		}
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
			return apierrors.NewNotFound(rbacv1.Resource(map[bool]string{true: "roles", false: "clusterroles"}[g.ref.Kind == "Role"]), g.ref.Name)
		}
		rules = slices.Concat(parts...)
	case g.aggregates: // it may get any rules later
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
	return admission.NewForbidden(a, fmt.Errorf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:%s", who.GetName(), who.GetGroups(), describe(lacking)))
}

// maxDescribed is how many rules, or missing roles, a refusal names.
const maxDescribed = 20

func describe(rules []rbacv1.PolicyRule) string {
	errs := make([]error, 0, len(rules))
	for n := range rules {
		errs = append(errs, errors.New(rules[n].String()))
	}
	return "\n" + some(errs).Error()
}

// some joins the first of some errors, and says how many more there are. It returns nil if there are none.
func some(errs []error) error {
	if more := len(errs) - maxDescribed; more > 0 {
		errs = append(slices.Clone(errs[:maxDescribed]), fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}

// grant is what a role or a binding gives.
type grant struct {
	rules      []rbacv1.PolicyRule
	aggregates bool              // it takes in other roles
	to         map[string]string // labels by which others may take it in
	rule       *rbacv1.AggregationRule

	ref      *rbacv1.RoleRef // nil: a role
	subjects []rbacv1.Subject
}

func grantOf(obj any) *grant {
	switch o := obj.(type) {
	case *rbacv1.Role:
		return &grant{rules: o.Rules}
	case *rbacv1.ClusterRole:
		return &grant{rules: o.Rules, aggregates: o.AggregationRule != nil, rule: o.AggregationRule, to: o.Labels}
	case *rbacv1.RoleBinding:
		return &grant{ref: &o.RoleRef, subjects: o.Subjects}
	case *rbacv1.ClusterRoleBinding:
		return &grant{ref: &o.RoleRef, subjects: o.Subjects}
	}
	return nil
}

func (g *grant) same(as *grant) bool { return reflect.DeepEqual(*g, *as) }

var _ admission.ValidationInterface = (*Escalation)(nil)
