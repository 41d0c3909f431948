package review

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/server/apis/resource"
)

// Self tells users who they are, or whom they impersonate.
func Self() resource.Virtual {
	return resource.Virtual{
		GroupVersion: authenticationv1.SchemeGroupVersion, Name: "selfsubjectreviews",
		Storage: resource.Review[*authenticationv1.SelfSubjectReview]{
			Singular: "selfsubjectreview",
			Empty:    &authenticationv1.SelfSubjectReview{},
			Answer:   answerSelf,
		},
	}
}

func answerSelf(ctx context.Context, _ *authenticationv1.SelfSubjectReview) (*authenticationv1.SelfSubjectReview, error) {
	who, err := userOf(ctx)
	if err != nil {
		return nil, err
	}
	return &authenticationv1.SelfSubjectReview{
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Now()},
		Status:     authenticationv1.SelfSubjectReviewStatus{UserInfo: userInfo(who)},
	}, nil
}
