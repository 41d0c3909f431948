package review

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/apis/resource"
)

// Tokens tells whom a bearer token stands for.
type Tokens struct {
	// Authenticator is the server's.
	Authenticator authenticator.Request
	// Audiences are those of the API: tokens that name no audience are for them.
	Audiences authenticator.Audiences
	// Hidden reports whether nobody may learn whose a token is: it is one of the server's own users.
	Hidden func(user.Info) bool
}

// Reviews returns the resource tokenreviews.
func (t Tokens) Reviews() resource.Virtual {
	return resource.Virtual{
		GroupVersion: authenticationv1.SchemeGroupVersion, Name: "tokenreviews",
		Storage: resource.Review[*authenticationv1.TokenReview]{
			Singular: "tokenreview",
			Empty:    &authenticationv1.TokenReview{},
			Answer:   t.answer,
		},
	}
}

func (t Tokens) answer(ctx context.Context, asked *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	if asked.Spec.Token == "" {
		return nil, apierrors.NewBadRequest("spec.token is empty: a TokenReview is about a token")
	}
	asked.ManagedFields = nil
	asked.Status = authenticationv1.TokenReviewStatus{}
	who, audiences, err := t.authenticate(ctx, asked.Spec)
	if err != nil {
		asked.Status.Error = err.Error()
		return asked, nil //nolint:nilerr // that the token is nobody's is the answer
	}
	if who != nil {
		asked.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: userInfo(who), Audiences: audiences}
	}
	return asked, nil
}

// authenticate returns whose the token is, and for which of the audiences in question. The user is nil if the token is
// nobody's, or somebody's of whom one may not know in the logical cluster of the context.
func (t Tokens) authenticate(ctx context.Context, asked authenticationv1.TokenReviewSpec) (user.Info, authenticator.Audiences, error) {
	// Only a part of a header with such a token would be taken for the token, and that part could be somebody's.
	if strings.ContainsFunc(asked.Token, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return nil, nil, nil
	}
	wanted := authenticator.Audiences(asked.Audiences)
	if len(wanted) == 0 {
		wanted = t.Audiences
	}
	// The request has the token and nothing else by which it could be somebody's: no certificate, no header of a
	// front, no path.
	req := (&http.Request{Method: http.MethodGet, URL: &url.URL{}, Header: http.Header{"Authorization": {"Bearer " + asked.Token}}}).
		WithContext(authenticator.WithAudiences(ctx, wanted))
	resp, ok, err := t.Authenticator.AuthenticateRequest(req)
	if err != nil || !ok || resp.User == nil || t.isNobody(ctx, resp.User) {
		return nil, nil, err
	}
	of := resp.Audiences
	if len(of) == 0 { // whoever knows of no audiences means the API
		of = t.Audiences
	}
	audiences := wanted.Intersect(of)
	if len(audiences) == 0 {
		return nil, nil, fmt.Errorf("the token is not for %q", wanted)
	}
	return resp.User, audiences, nil
}

// isNobody reports whether nobody may learn of a user in the logical cluster of the context: it is a service account of
// another cluster, one of the server's own users, or has no credentials.
func (t Tokens) isNobody(ctx context.Context, who user.Info) bool {
	cluster, _ := clusters.From(ctx)
	of, bound := who.GetExtra()[clusters.IdentityClusterExtra]
	return t.Hidden(who) || who.GetName() == user.Anonymous || bound && !slices.Equal(of, []string{cluster.String()})
}
