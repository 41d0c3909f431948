package server

import (
	"context"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

func TestUsersAskWhatTheyMayDo(t *testing.T) {
	s := startSociety(t)
	team := s.founds("ann", "team")
	ann := s.as("ann", team)
	if _, err := ann.RbacV1().RoleBindings("default").Create(t.Context(), toUserIn("b", "view", "bob"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := ann.RbacV1().ClusterRoleBindings().Create(t.Context(), toUser("bob-in", "system:kcp:workspace:access", "bob"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bob := s.as("bob", team)
	in := func(namespace, verb, resource string) *authorizationv1.ResourceAttributes {
		return &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Resource: resource}
	}
	eventually(t, "bob may read", func(ctx context.Context) error {
		_, err := bob.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		return err
	})
	for _, c := range []struct {
		of   *authorizationv1.ResourceAttributes
		want bool
	}{
		{in("default", "get", "configmaps"), true},
		{in("default", "delete", "configmaps"), false},
		{in("default", "get", "secrets"), false},
		{in("kube-system", "get", "configmaps"), false},
	} {
		own, err := bob.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: c.of},
		}, metav1.CreateOptions{})
		if err != nil || own.Status.Allowed != c.want {
			t.Errorf("bob, of bob's own, %+v: %+v (%v), want %t", c.of, own.Status, err, c.want)
		}
		spec := authorizationv1.SubjectAccessReviewSpec{User: "bob", Groups: []string{user.AllAuthenticated}, ResourceAttributes: c.of}
		of, err := ann.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		if err != nil || of.Status.Allowed != c.want {
			t.Errorf("ann, of bob, %+v: %+v (%v), want %t", c.of, of.Status, err, c.want)
		}
		local, err := ann.AuthorizationV1().LocalSubjectAccessReviews(c.of.Namespace).Create(t.Context(), &authorizationv1.LocalSubjectAccessReview{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.of.Namespace}, Spec: spec,
		}, metav1.CreateOptions{})
		if err != nil || local.Status.Allowed != c.want {
			t.Errorf("ann, of bob, in %s: %+v (%v), want %t", c.of.Namespace, local.Status, err, c.want)
		}
	}
	_, err := bob.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: "ann", ResourceAttributes: in("default", "get", "secrets")},
	}, metav1.CreateOptions{})
	s.refused("bob asks about ann", err)
	_, err = ann.AuthorizationV1().LocalSubjectAccessReviews("default").Create(t.Context(), &authorizationv1.LocalSubjectAccessReview{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Spec: authorizationv1.SubjectAccessReviewSpec{User: "bob", ResourceAttributes: in("kube-system", "get", "secrets")},
	}, metav1.CreateOptions{})
	if !apierrors.IsBadRequest(err) {
		t.Errorf("a local review of another namespace: %v", err)
	}
	rules, err := bob.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"},
	}, metav1.CreateOptions{})
	if err != nil || rules.Status.Incomplete || len(rules.Status.ResourceRules) < 5 || len(rules.Status.NonResourceRules) != 2 {
		t.Errorf("bob's rules are %+v (%v)", rules.Status, err)
	}
	for _, rule := range rules.Status.ResourceRules {
		if slices.Contains(rule.Resources, "secrets") || slices.Contains(rule.Verbs, "delete") {
			t.Errorf("bob is told that bob may %+v", rule)
		}
	}
	who, err := bob.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || who.Status.UserInfo.Username != "bob" {
		t.Errorf("bob is %+v (%v)", who.Status, err)
	}
}
