package review

import (
	"context"
	"errors"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/regent-project/regent/pkg/server/apis/resource"
)

// Self tells users who they are, or whom they impersonate.
func Self() resource.Virtual {
	return resource.Virtual{
		GroupVersion: authenticationv1.SchemeGroupVersion, Name: "selfsubjectreviews",
		Storage: resource.Review[*authenticationv1.SelfSubjectReview]{
			Singular: "selfsubjectreview",
			Empty:    func() *authenticationv1.SelfSubjectReview { return &authenticationv1.SelfSubjectReview{} },
			Answer:   answerSelf,
		},
	}
}

func answerSelf(ctx context.Context, _ *authenticationv1.SelfSubjectReview) (*authenticationv1.SelfSubjectReview, error) {
	who, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewInternalError(errors.New("the request has no user"))
	}
	return &authenticationv1.SelfSubjectReview{
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Now()},
		Status:     authenticationv1.SelfSubjectReviewStatus{UserInfo: userInfo(who)},
	}, nil
}
