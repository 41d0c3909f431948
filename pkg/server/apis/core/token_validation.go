package core

import (
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// minLifetime is the shortest lifetime of a token that can be asked for.
	minLifetime = 10 * time.Minute
	// defaultLifetime is the lifetime of tokens for which none is asked for.
	defaultLifetime = time.Hour
	// maxAsked is upstream's limit on what can be asked for, in seconds. Tokens live no longer than
	// Tokens.MaxLifetime anyway.
	maxAsked = 1 << 32
	// maxAudiences is how many bytes all audiences of a token may have together. A token must fit into a header,
	// and replicas remember tokens.
	maxAudiences = 2048
)

func validateTokenRequest(r *authenticationv1.TokenRequest) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	seconds := *r.Spec.ExpirationSeconds
	if least := int64(minLifetime.Seconds()); seconds < least {
		errs = append(errs, field.Invalid(spec.Child("expirationSeconds"), seconds, "may not specify a duration less than 10 minutes"))
	}
	if seconds > maxAsked {
		errs = append(errs, field.Invalid(spec.Child("expirationSeconds"), seconds, "may not specify a duration larger than 2^32 seconds"))
	}
	bytes := 0
	for n, audience := range r.Spec.Audiences {
		bytes += len(audience)
		if audience == "" {
			errs = append(errs, field.Required(spec.Child("audiences").Index(n), "an audience must not be empty"))
		}
	}
	if bytes > maxAudiences {
		errs = append(errs, field.TooLong(spec.Child("audiences"), "", maxAudiences))
	}
	if len(r.Spec.Attestations) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("attestations"), "this server attests to nothing: leave them out"))
	}
	return append(errs, validateBound(r.Spec.BoundObjectRef, spec.Child("boundObjectRef"))...)
}

// validateBound refuses references to what is not served here, or cannot be watched over.
func validateBound(to *authenticationv1.BoundObjectReference, path *field.Path) field.ErrorList {
	if to == nil {
		return nil
	}
	if to.Kind != "Secret" || to.APIVersion != "v1" {
		return field.ErrorList{field.NotSupported(path.Child("kind"), to.APIVersion+" "+to.Kind, []string{"v1 Secret"})}
	}
	if to.Name == "" {
		return field.ErrorList{field.Required(path.Child("name"), "")}
	}
	return nil
}
