// Package identity says who asks, and what they may do: users of this process, other members of the installation,
// people and service accounts.
package identity

import (
	"context"
	"errors"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticatorunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/kcp-dev/logicalcluster/v3"

	"github.com/regent-project/regent/pkg/server/access"
	"github.com/regent-project/regent/pkg/server/authentication"
	"github.com/regent-project/regent/pkg/server/authorization"
	"github.com/regent-project/regent/pkg/server/serviceaccounts"
	"github.com/regent-project/regent/pkg/server/status"
)

// Config is what New needs.
type Config struct {
	// Shard is the name of this shard, and RootShard that of the installation's root shard.
	Shard, RootShard string
	// Replica is the name of this replica, for metrics of webhooks.
	Replica string
	// Members trusts the installation's authority, and ClientCA all authorities for certificates of users.
	Members, ClientCA dynamiccertificates.CAContentProvider
	// TokenFile names a file with bearer tokens. It may be empty.
	TokenFile string
	// Issuer signs the tokens of this shard's service accounts.
	Issuer *serviceaccounts.Issuer
	// AuthenticationFile and AuthorizationFile name an AuthenticationConfiguration and an
	// AuthorizationConfiguration. Both may be empty. TokenWebhook says whom to ask about tokens that nobody else
	// knows.
	AuthenticationFile, AuthorizationFile string
	TokenWebhook                          authentication.Webhook
}

// Identity decides who asks and what they may do. Users, and what roles allow them, are in the store, which is opened
// later: until Bind, whoever needs it is refused.
type Identity struct {
	// Authenticator knows all users. Here knows the same, except those that only a webhook knows.
	Authenticator, Here authenticator.Request
	Authorizer          authorizer.Authorizer
	// InProcess are the users of this process.
	InProcess InProcess
	// Issuer signs the tokens of this shard's service accounts, and Accounts says whose they are.
	Issuer   *serviceaccounts.Issuer
	Accounts *serviceaccounts.Authenticator

	late           *late
	members        *members
	rbac           *access.Authorizer
	otherAccounts  *serviceaccounts.Others
	authentication *authentication.Authentication
	authorization  *authorization.Authorization
	webhooks       bool
}

// New returns an Identity that must be closed.
func New(cfg Config) (*Identity, error) {
	late := &late{}
	i := &Identity{
		InProcess: newInProcess(), Issuer: cfg.Issuer, late: late, webhooks: cfg.AuthorizationFile != "",
		members: &members{authorities: cfg.Members, own: cfg.Shard, root: cfg.RootShard, late: late},
		rbac:    &access.Authorizer{Policy: latePolicy{late}, Fresh: late.fresh},
	}
	i.Accounts = serviceaccounts.NewAuthenticator(i.Issuer, &boundObjects{late})
	i.otherAccounts = serviceaccounts.NewOthers(&peers{late}, i.Accounts)
	var err error
	if i.authentication, err = authentication.New(authentication.Config{
		File: cfg.AuthenticationFile, PublicPaths: PublicPaths, Webhook: cfg.TokenWebhook, Replica: cfg.Replica,
		OwnIssuers: []string{i.Issuer.Name},
	}); err != nil {
		return nil, err
	}
	accounts := authenticatorunion.New(i.Accounts, i.otherAccounts)
	if i.Authenticator, i.Here, err = newAuthenticator(i.InProcess, i.members, cfg.ClientCA, accounts, cfg.TokenFile, i.authentication); err != nil {
		i.authentication.Close()
		return nil, err
	}
	if i.authorization, err = authorization.New(authorization.Config{File: cfg.AuthorizationFile, Never: noWebhook, Replica: cfg.Replica}); err != nil {
		i.authentication.Close()
		return nil, err
	}
	if i.Authorizer, err = newAuthorizer(i.members, i.authorization.Around(i.rbac)); err != nil {
		i.Close()
		return nil, err
	}
	return i, nil
}

// Answer answers another shard about a token of a service account of this one.
func (i *Identity) Answer(ctx context.Context, q serviceaccounts.Question) (serviceaccounts.Answer, error) {
	return i.otherAccounts.Answer(ctx, q)
}

// Bind gives an Identity what it reads. It is called once.
func (i *Identity) Bind(s Sources) { i.late.bind(s) }

// Runs returns what must run until its context ends, by name. It is called after Bind.
func (i *Identity) Runs() map[string]func(context.Context) {
	out := map[string]func(context.Context){"authentication": i.authentication.Run, "authorization": i.authorization.Run}
	if s := i.late.Load(); s != nil && s.Others != nil {
		out["keys of other shards' accounts"] = i.otherAccounts.Run
	}
	return out
}

// Close frees what New has made.
func (i *Identity) Close() {
	i.authentication.Close()
	i.authorization.Close()
}

// Fronts returns the fronts that are members of the installation, and when each was last heard, ordered by name.
func (i *Identity) Fronts() []status.Front { return i.members.list() }

// Policy returns what roles and bindings say, from memory.
func (i *Identity) Policy() access.Policy { return i.rbac.Policy }

// Stored returns the policy of a cluster as it is stored after the call has begun.
func (i *Identity) Stored(ctx context.Context, cluster logicalcluster.Name) (access.Policy, error) {
	return i.late.stored(ctx, cluster)
}

// Rights returns the rules that a user has by RBAC. What webhooks say of a user is known only for one request at a
// time.
func (i *Identity) Rights(ctx context.Context, who user.Info, namespace string) ([]rbacv1.PolicyRule, error) {
	rules, incomplete := i.rbac.Rights(ctx, who, namespace)
	if i.webhooks && !noWebhook(who) {
		incomplete = errors.Join(incomplete, errors.New("webhooks may allow more, or less: ask about what you want to do, as kubectl auth can-i <verb> <resource>"))
	}
	return rules, incomplete
}

// IsHidden reports whether reviews of tokens do not tell of a user: those of this process, and members.
func IsHidden(who user.Info) bool { return isReserved(who) || IsMember(who) }
