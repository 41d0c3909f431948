package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/token/jwt"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/apis/resource"
	"github.com/regent-project/regent/pkg/server/serviceaccounts"
)

// TokenKinds are the types of the subresource token of service accounts.
var TokenKinds = resource.Kinds{GroupVersion: authenticationv1.SchemeGroupVersion, Objects: []runtime.Object{&authenticationv1.TokenRequest{}}}

// Tokens says how tokens of service accounts are made.
type Tokens struct {
	Issuer *serviceaccounts.Issuer
	// MaxLifetime is how long a token is valid at most. Requests for longer ones get that.
	MaxLifetime time.Duration
	Accounts    Accounts
}

// Accounts reads from storage, in the logical cluster and the namespace of the context. Its errors are those of the
// API.
type Accounts interface {
	ServiceAccount(ctx context.Context, name string) (*corev1.ServiceAccount, error)
	Secret(ctx context.Context, name string) (*corev1.Secret, error)
}

// Subresource returns the subresource token of service accounts.
func (t Tokens) Subresource() resource.Virtual {
	return resource.Virtual{GroupVersion: corev1.SchemeGroupVersion, Name: "serviceaccounts/token", Storage: &tokenRequests{t}}
}

// tokenRequests answers requests for tokens.
type tokenRequests struct{ Tokens }

func (r *tokenRequests) New() runtime.Object { return &authenticationv1.TokenRequest{} }

func (r *tokenRequests) Destroy() {}

// GroupVersionKind implements rest.GroupVersionKindProvider: the kind is not of the group under which it is served.
func (r *tokenRequests) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")
}

// Create implements rest.NamedCreater.
func (r *tokenRequests) Create(
	ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, opts *metav1.CreateOptions,
) (runtime.Object, error) {
	asked, ok := obj.(*authenticationv1.TokenRequest)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a %T is no TokenRequest", obj))
	}
	if err := r.complete(ctx, name, asked); err != nil {
		return nil, err
	}
	if errs := validateTokenRequest(asked); len(errs) > 0 {
		return nil, apierrors.NewInvalid(authenticationv1.SchemeGroupVersion.WithKind("TokenRequest").GroupKind(), name, errs)
	}
	if validate != nil {
		if err := validate(ctx, asked.DeepCopy()); err != nil {
			return nil, err
		}
	}
	grant, err := r.grant(ctx, name, asked)
	if err != nil || len(opts.DryRun) > 0 {
		return asked, err
	}
	token, err := r.Issuer.Issue(grant)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	audit.AddAuditAnnotation(ctx, serviceaccount.IssuedCredentialIDAuditAnnotationKey, jwt.CredentialIDForJTI(token.ID))
	asked.Status = authenticationv1.TokenRequestStatus{Token: token.Text, ExpirationTimestamp: metav1.NewTime(token.Expires)}
	return asked, nil
}

// complete sets what a request has left out. It refuses one for another account than that of the URL.
func (r *tokenRequests) complete(ctx context.Context, name string, asked *authenticationv1.TokenRequest) error {
	namespace := request.NamespaceValue(ctx)
	if asked.Name == "" {
		asked.Name = name
	}
	if asked.Namespace == "" {
		asked.Namespace = namespace
	}
	if asked.Name != name || asked.Namespace != namespace {
		return apierrors.NewBadRequest(fmt.Sprintf("the request is for the service account %s/%s, and was sent to %s/%s", asked.Namespace, asked.Name, namespace, name))
	}
	asked.CreationTimestamp = metav1.Now()
	asked.ManagedFields = nil
	asked.Status = authenticationv1.TokenRequestStatus{}
	if len(asked.Spec.Audiences) == 0 {
		asked.Spec.Audiences = r.Issuer.Audiences
	}
	if asked.Spec.ExpirationSeconds == nil {
		lifetime := int64(min(defaultLifetime, r.MaxLifetime).Seconds())
		asked.Spec.ExpirationSeconds = &lifetime
	}
	return nil
}

// grant returns what the token is to say. It reads the account, and the Secret to which the token is to be bound.
func (r *tokenRequests) grant(ctx context.Context, name string, asked *authenticationv1.TokenRequest) (serviceaccounts.Grant, error) {
	cluster, ok := clusters.From(ctx)
	if !ok {
		return serviceaccounts.Grant{}, apierrors.NewInternalError(clusters.ErrNoCluster)
	}
	account, err := r.Accounts.ServiceAccount(ctx, name)
	if err != nil {
		return serviceaccounts.Grant{}, err
	}
	if account.DeletionTimestamp != nil {
		return serviceaccounts.Grant{}, apierrors.NewConflict(corev1.Resource("serviceaccounts"), name, errors.New("it is being deleted"))
	}
	seconds := min(*asked.Spec.ExpirationSeconds, int64(r.MaxLifetime.Seconds()))
	// kubectl prints the token only, and not the answer, which says it too
	if seconds < *asked.Spec.ExpirationSeconds {
		warning.AddWarning(ctx, "", fmt.Sprintf("the token is valid for %v, the longest lifetime here, and not for the %v that were asked for",
			time.Duration(seconds)*time.Second, time.Duration(*asked.Spec.ExpirationSeconds)*time.Second))
	}
	asked.Spec.ExpirationSeconds = &seconds // what the client is told that it has got
	grant := serviceaccounts.Grant{
		Cluster: cluster, Account: account, Audiences: asked.Spec.Audiences, Lifetime: time.Duration(seconds) * time.Second,
	}
	if to := asked.Spec.BoundObjectRef; to != nil {
		if grant.Secret, err = r.Accounts.Secret(ctx, to.Name); err != nil {
			return serviceaccounts.Grant{}, err
		}
		if to.UID != "" && to.UID != grant.Secret.UID {
			return serviceaccounts.Grant{}, apierrors.NewConflict(corev1.Resource("secrets"), to.Name,
				fmt.Errorf("the uid in the request is %s, that of the secret is %s", to.UID, grant.Secret.UID))
		}
		to.UID = grant.Secret.UID
	}
	return grant, nil
}

var (
	_ rest.NamedCreater             = (*tokenRequests)(nil)
	_ rest.GroupVersionKindProvider = (*tokenRequests)(nil)
)
