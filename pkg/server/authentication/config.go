package authentication

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
)

// decoder knows the versions of AuthenticationConfiguration. It refuses fields that it does not know, and fields that
// are given twice.
var decoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder()
}()

// decode returns what a file says. public are the only paths on which it may let anonymous users in.
func decode(content []byte, compiler authenticationcel.Compiler, public, ownIssuers []string) (*apiserver.AuthenticationConfiguration, error) {
	object, err := runtime.Decode(decoder, content)
	if err != nil {
		return nil, err
	}
	config, ok := object.(*apiserver.AuthenticationConfiguration)
	if !ok {
		return nil, fmt.Errorf("is a %T, must be an AuthenticationConfiguration of apiserver.config.k8s.io", object)
	}
	if err := validation.ValidateAuthenticationConfiguration(compiler, config, ownIssuers).ToAggregate(); err != nil {
		return nil, err
	}
	for i, issuer := range config.JWT {
		if issuer.Issuer.EgressSelectorType != "" {
			return nil, fmt.Errorf("jwt[%d].issuer.egressSelectorType: this server has no egress selectors: leave it out", i)
		}
	}
	return config, checkAnonymous(config.Anonymous, public)
}

// checkAnonymous refuses to let anonymous users in anywhere but on the public paths.
func checkAnonymous(anonymous *apiserver.AnonymousAuthConfig, public []string) error {
	if anonymous == nil || !anonymous.Enabled {
		return nil
	}
	if len(anonymous.Conditions) == 0 {
		return fmt.Errorf("anonymous.enabled: anonymous users have the paths %q and no others: give conditions with some of them, or leave anonymous out", public)
	}
	var errs []error
	for i, condition := range anonymous.Conditions {
		if !slices.Contains(public, condition.Path) {
			errs = append(errs, fmt.Errorf("anonymous.conditions[%d].path: %s is not public: anonymous users have the paths %q and no others", i, condition.Path, public))
		}
	}
	return errors.Join(errs...)
}

// conditions returns where anonymous users are let in. None: nowhere.
func conditions(anonymous *apiserver.AnonymousAuthConfig, public []string) []apiserver.AnonymousAuthCondition {
	switch {
	case anonymous == nil:
		var all []apiserver.AnonymousAuthCondition
		for _, path := range public {
			all = append(all, apiserver.AnonymousAuthCondition{Path: path})
		}
		return all
	case !anonymous.Enabled:
		return nil
	}
	return anonymous.Conditions
}
