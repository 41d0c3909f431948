package review

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/regent-project/regent/pkg/server/apis/resource"
)

// Access says who may do what in the logical cluster of a request.
type Access struct {
	// Authorizer is the server's.
	Authorizer authorizer.Authorizer
	// Rights returns the rules that a user has in a namespace, and why they may not be all.
	Rights func(ctx context.Context, who user.Info, namespace string) (rules []rbacv1.PolicyRule, incomplete error)
}

// Reviews returns the resources of authorization.k8s.io.
func (a Access) Reviews() []resource.Virtual {
	gv := authorizationv1.SchemeGroupVersion
	return []resource.Virtual{
		{GroupVersion: gv, Name: "subjectaccessreviews", Storage: resource.Review[*authorizationv1.SubjectAccessReview]{
			Singular: "subjectaccessreview",
			Empty:    &authorizationv1.SubjectAccessReview{},
			Answer:   a.subject,
		}},
		{GroupVersion: gv, Name: "localsubjectaccessreviews", Storage: resource.Review[*authorizationv1.LocalSubjectAccessReview]{
			Singular: "localsubjectaccessreview", Namespaced: true,
			Empty:  &authorizationv1.LocalSubjectAccessReview{},
			Answer: a.local,
		}},
		{GroupVersion: gv, Name: "selfsubjectaccessreviews", Storage: resource.Review[*authorizationv1.SelfSubjectAccessReview]{
			Singular: "selfsubjectaccessreview",
			Empty:    &authorizationv1.SelfSubjectAccessReview{},
			Answer:   a.self,
		}},
		{GroupVersion: gv, Name: "selfsubjectrulesreviews", Storage: resource.Review[*authorizationv1.SelfSubjectRulesReview]{
			Singular: "selfsubjectrulesreview",
			Empty:    &authorizationv1.SelfSubjectRulesReview{},
			Answer:   a.rules,
		}},
	}
}

func (a Access) subject(ctx context.Context, asked *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	status, err := a.decide(ctx, asked.Spec)
	asked.ManagedFields, asked.Status = nil, status
	return asked, err
}

func (a Access) local(ctx context.Context, asked *authorizationv1.LocalSubjectAccessReview) (*authorizationv1.LocalSubjectAccessReview, error) {
	namespace, _ := request.NamespaceFrom(ctx)
	if asked.Spec.ResourceAttributes == nil || asked.Spec.NonResourceAttributes != nil || asked.Spec.ResourceAttributes.Namespace != namespace {
		return nil, apierrors.NewBadRequest("a LocalSubjectAccessReview is about resources of its own namespace: spec.resourceAttributes.namespace must be that of the URL")
	}
	status, err := a.decide(ctx, asked.Spec)
	asked.ManagedFields, asked.Status = nil, status
	return asked, err
}

func (a Access) self(ctx context.Context, asked *authorizationv1.SelfSubjectAccessReview) (*authorizationv1.SelfSubjectAccessReview, error) {
	who, err := userOf(ctx)
	if err != nil {
		return nil, err
	}
	attributes, err := attributesOf(who, asked.Spec.ResourceAttributes, asked.Spec.NonResourceAttributes)
	if err != nil {
		return nil, err
	}
	asked.ManagedFields, asked.Status = nil, a.ask(ctx, attributes)
	return asked, nil
}

func (a Access) decide(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (status authorizationv1.SubjectAccessReviewStatus, err error) {
	if spec.User == "" && len(spec.Groups) == 0 {
		return status, apierrors.NewBadRequest("spec.user and spec.groups are empty: a SubjectAccessReview is about somebody")
	}
	who := &user.DefaultInfo{Name: spec.User, UID: spec.UID, Groups: spec.Groups}
	for key, values := range spec.Extra {
		if who.Extra == nil {
			who.Extra = map[string][]string{}
		}
		who.Extra[key] = values
	}
	attributes, err := attributesOf(who, spec.ResourceAttributes, spec.NonResourceAttributes)
	if err != nil {
		return status, err
	}
	return a.ask(ctx, attributes), nil
}

func attributesOf(who user.Info, resource *authorizationv1.ResourceAttributes, other *authorizationv1.NonResourceAttributes) (authorizer.Attributes, error) {
	switch {
	case (resource == nil) == (other == nil):
		return nil, apierrors.NewBadRequest("exactly one of spec.resourceAttributes and spec.nonResourceAttributes must be given")
	case other != nil:
		return authorizer.AttributesRecord{User: who, Verb: other.Verb, Path: other.Path}, nil
	}
	// Selectors are left out: no authorizer here lets them decide, and without them more is asked for, never less.
	return authorizer.AttributesRecord{
		User: who, Verb: resource.Verb, Namespace: resource.Namespace, APIGroup: resource.Group, APIVersion: resource.Version,
		Resource: resource.Resource, Subresource: resource.Subresource, Name: resource.Name, ResourceRequest: true,
	}, nil
}

func (a Access) ask(ctx context.Context, attributes authorizer.Attributes) authorizationv1.SubjectAccessReviewStatus {
	decision, reason, err := a.Authorizer.Authorize(ctx, attributes)
	status := authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow, Denied: decision == authorizer.DecisionDeny, Reason: reason,
	}
	if err != nil {
		status.EvaluationError = err.Error()
	}
	return status
}

func (a Access) rules(ctx context.Context, asked *authorizationv1.SelfSubjectRulesReview) (*authorizationv1.SelfSubjectRulesReview, error) {
	who, err := userOf(ctx)
	if err != nil {
		return nil, err
	}
	if asked.Spec.Namespace == "" {
		return nil, apierrors.NewBadRequest("spec.namespace is empty: a SelfSubjectRulesReview is about a namespace")
	}
	rules, incomplete := a.Rights(ctx, who, asked.Spec.Namespace)
	asked.ManagedFields = nil
	asked.Status = authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{}, Incomplete: incomplete != nil,
	}
	if incomplete != nil {
		asked.Status.EvaluationError = incomplete.Error()
	}
	for _, rule := range rules {
		if len(rule.NonResourceURLs) > 0 {
			asked.Status.NonResourceRules = append(asked.Status.NonResourceRules, authorizationv1.NonResourceRule{Verbs: rule.Verbs, NonResourceURLs: rule.NonResourceURLs})
			continue
		}
		asked.Status.ResourceRules = append(asked.Status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames,
		})
	}
	return asked, nil
}
