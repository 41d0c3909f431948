// Package authorization asks the operator's webhooks what users may do, as upstream's AuthorizationConfiguration says.
package authorization

import (
	"context"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	configmetrics "k8s.io/apiserver/pkg/server/options/authorizationconfig/metrics"

	"github.com/regent-project/regent/pkg/server/reload"
)

// Config says which webhooks to ask, and about whom.
type Config struct {
	// File names an AuthorizationConfiguration (apiserver.config.k8s.io/v1). It is read again when it changes.
	// Empty: no webhook is asked.
	File string
	// Never reports whether webhooks have no say about a user.
	Never func(user.Info) bool
	// Replica is this replica's name, for upstream's metrics.
	Replica string
}

// Authorization asks webhooks. Run follows the file.
type Authorization struct {
	never func(user.Info) bool
	file  *reload.Value[*chain] // nil: no file
}

// New reads the files that cfg names. It asks nobody yet.
func New(cfg Config) (*Authorization, error) {
	registerMetrics()
	a := &Authorization{never: cfg.Never}
	if cfg.File == "" {
		return a, nil
	}
	compiler := authorizationcel.NewDefaultCompiler()
	var err error
	a.file, err = reload.New(reload.Source[*chain]{
		Flag: "--authorization-config", File: cfg.File,
		Make: func(content []byte, _ *chain) (*chain, error) {
			made, err := newChain(content, compiler)
			if err == nil {
				configmetrics.RecordAuthorizationConfigLastConfigInfo(cfg.Replica, string(content))
			}
			return made, err
		},
		Work: func(ctx context.Context, c *chain) {
			<-ctx.Done()
			c.closeIdle()
		},
		Reloaded: func(content []byte) {
			configmetrics.RecordAuthorizationConfigAutomaticReloadSuccess(cfg.Replica, string(content))
		},
		Refused: func() { configmetrics.RecordAuthorizationConfigAutomaticReloadFailure(cfg.Replica) },
	})
	return a, err
}

// Run follows the file until ctx ends. Requests that the server still finishes are authorized by what was read last.
func (a *Authorization) Run(ctx context.Context) {
	if a.file != nil {
		a.file.Run(ctx)
		return
	}
	<-ctx.Done()
}

// Close closes idle connections. It is called when all requests have been answered: each question to a webhook is part
// of a request.
func (a *Authorization) Close() {
	if a.file != nil {
		now, done := a.file.Use()
		defer done()
		now.closeIdle()
	}
}

// Around returns an authorizer that asks the webhooks, and rbac at the place that the file gives it among them. The
// first that allows or denies decides. Without a file it asks rbac alone. rbac may be nil: it has no opinion then.
//
// Webhooks are asked about requests in one logical cluster that is not the shard's own. So they cannot tell which
// clusters exist, do not decide about the shard's records, and do not give rights in all clusters at once.
func (a *Authorization) Around(rbac authorizer.Authorizer) authorizer.Authorizer {
	if rbac == nil {
		rbac = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionNoOpinion, "", nil
		})
	}
	if a.file == nil {
		return rbac
	}
	return authorizer.AuthorizerFunc(func(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
		asked, concerned := inCluster(ctx, attributes)
		if !concerned || a.never(attributes.GetUser()) {
			return rbac.Authorize(ctx, attributes)
		}
		now, done := a.file.Use()
		defer done()
		var reasons []string
		var errs []error
		for _, webhook := range now.entries {
			ask := func() (authorizer.Decision, string, error) { return rbac.Authorize(ctx, attributes) }
			if webhook != nil {
				ask = func() (authorizer.Decision, string, error) { return webhook.authorize(ctx, asked) }
			}
			decision, reason, err := ask()
			if decision != authorizer.DecisionNoOpinion {
				return decision, reason, err
			}
			if reason != "" {
				reasons = append(reasons, reason)
			}
			errs = append(errs, err)
		}
		return authorizer.DecisionNoOpinion, strings.Join(reasons, "\n"), utilerrors.NewAggregate(errs)
	})
}
