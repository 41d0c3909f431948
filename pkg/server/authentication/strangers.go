package authentication

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// strangers refuses users whom only this server itself can know. An issuer or a webhook that names one is mistaken, or
// lies.
type strangers struct{ authenticator.Token }

// AuthenticateToken implements authenticator.Token.
func (s strangers) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	resp, ok, err := s.Token.AuthenticateToken(ctx, token)
	if err != nil || !ok {
		return nil, false, err
	}
	if err := checkStranger(resp.User); err != nil {
		return nil, false, err
	}
	return resp, true, nil
}

// ownExtra are the domains of what this server says of users beside their names and groups: from which cluster they
// are, and what else limits their rights.
var ownExtra = []string{"authentication.kcp.io/", "authorization.kcp.io/", "authentication.kubernetes.io/", "regent.dev/"}

func checkStranger(who user.Info) error {
	if who.GetName() == "" {
		return fmt.Errorf("the token's user has no name")
	}
	if strings.HasPrefix(who.GetName(), serviceaccount.ServiceAccountUsernamePrefix) {
		return fmt.Errorf("user %q: only the cluster's own tokens name service accounts: have the issuer's users given another prefix", who.GetName())
	}
	for key := range who.GetExtra() {
		for _, domain := range ownExtra {
			if strings.HasPrefix(key, domain) {
				return fmt.Errorf("user %q: extra %q is for this server to say: have it left out", who.GetName(), key)
			}
		}
	}
	return nil
}
