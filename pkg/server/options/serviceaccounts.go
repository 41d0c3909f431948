package options

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/regent-project/regent/pkg/server/identity"
)

// minTokenLifetime is the shortest lifetime that can be asked for.
const minTokenLifetime = 10 * time.Minute

func serviceAccountFaults(s identity.ServiceAccounts) []error {
	var errs []error
	if s.MaxTokenLifetime < minTokenLifetime {
		errs = append(errs, fmt.Errorf("--service-account-max-token-expiration %v must be at least %v: nobody may ask for less", s.MaxTokenLifetime, minTokenLifetime))
	}
	if u, err := url.Parse(s.Issuer); strings.Contains(s.Issuer, ":") && (err != nil || u.Scheme == "" || u.Host == "") {
		errs = append(errs, fmt.Errorf("--service-account-issuer %q has a colon and is no URL: give a URL, or a name without colons", s.Issuer))
	}
	return errs
}
