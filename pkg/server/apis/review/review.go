// Package review answers questions about users: who they are, and what they may do. The questions are objects that
// clients create, and that nobody stores.
package review

import (
	"context"
	"errors"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/regent-project/regent/pkg/server/apis/resource"
)

// Kinds are the types of all reviews.
var Kinds = []resource.Kinds{{
	GroupVersion: authenticationv1.SchemeGroupVersion,
	Objects:      []runtime.Object{&authenticationv1.TokenReview{}, &authenticationv1.SelfSubjectReview{}},
}, {
	GroupVersion: authorizationv1.SchemeGroupVersion,
	Objects: []runtime.Object{
		&authorizationv1.SubjectAccessReview{}, &authorizationv1.LocalSubjectAccessReview{},
		&authorizationv1.SelfSubjectAccessReview{}, &authorizationv1.SelfSubjectRulesReview{},
	},
}}

// userOf returns whose request has the context.
func userOf(ctx context.Context) (user.Info, error) {
	who, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewInternalError(errors.New("the request has no user"))
	}
	return who, nil
}

// userInfo returns a user as reviews show it.
func userInfo(who user.Info) authenticationv1.UserInfo {
	out := authenticationv1.UserInfo{Username: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups()}
	for key, values := range who.GetExtra() {
		if out.Extra == nil {
			out.Extra = map[string]authenticationv1.ExtraValue{}
		}
		out.Extra[key] = values
	}
	return out
}
