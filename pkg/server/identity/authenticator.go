package identity

import (
	"fmt"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/regent-project/regent/pkg/server/authentication"
)

// newAuthenticator accepts in-process users, other members of the installation, client certificates, tokens of service
// accounts, bearer tokens from the operator's file, and those that configured knows. Everyone else is anonymous on the
// public paths, and unauthenticated elsewhere. here accepts the same users, except those whom a webhook knows, and does
// not say of what groups all of them are.
func newAuthenticator(
	p InProcess, members *members, clientCA dynamiccertificates.CAContentProvider, accounts authenticator.Token, tokenFile string,
	configured *authentication.Authentication,
) (all, here authenticator.Request, err error) {
	methods := []authenticator.Request{
		p.authenticator(),
		// Before all tokens, as in Kubernetes, and as at a front, which knows certificates only: one request is
		// of one user, whichever way it takes.
		notReserved{newCertificates(clientCA, members.noMembers)},
		bearertoken.New(accounts),
	}
	if tokenFile != "" {
		tokens, err := tokenfile.NewCSV(tokenFile)
		if err != nil {
			return nil, nil, fmt.Errorf("cannot read --token-auth-file: %w", err)
		}
		methods = append(methods, notReserved{bearertoken.New(tokens)})
	}
	byKeys, asking := configured.Methods()
	for _, method := range byKeys {
		methods = append(methods, notReserved{method})
	}
	ofMembers, err := members.authenticator()
	if err != nil {
		return nil, nil, err
	}
	here = union.New(append([]authenticator.Request{ofMembers}, methods...)...)
	for _, method := range asking { // last, because a webhook is told tokens that nobody knows
		methods = append(methods, notReserved{method})
	}
	known := union.New(ofMembers, group.NewAuthenticatedGroupAdder(union.New(methods...)))
	return union.NewFailOnError(known, configured.Anonymous()), here, nil
}
