// Package authentication finds out who the users are whose tokens others have issued: OpenID Connect issuers, and a
// webhook. The server itself knows its own users, those with certificates, and those of its token file.
package authentication

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	configmetrics "k8s.io/apiserver/pkg/server/options/authenticationconfig/metrics"

	"github.com/regent-project/regent/pkg/server/reload"
)

// Config says whom to ask who users are.
type Config struct {
	// File names an AuthenticationConfiguration (apiserver.config.k8s.io/v1). It is read again when it changes.
	// Empty: there are no issuers, and anonymous users have all public paths.
	File string
	// PublicPaths are the paths on which anonymous users may be let in.
	PublicPaths []string
	// OwnIssuers are the issuers of the server's own tokens. The file must not name them.
	OwnIssuers []string
	// Webhook says which webhook to ask about tokens that nobody else knows.
	Webhook Webhook
	// Replica is this replica's name, for upstream's metrics.
	Replica string
}

// Authentication lets in users by what Config names. Run does the work of it.
type Authentication struct {
	issuers   *reload.Value[*issuers] // nil: no file
	anonymous authenticator.Request   // without a file
	webhook   *webhook                // nil: none
}

// New reads the files that cfg names. It asks nobody yet.
func New(cfg Config) (*Authentication, error) {
	registerMetrics()
	a := &Authentication{anonymous: anonymousUsers(nil, cfg.PublicPaths)}
	var err error
	if a.webhook, err = newWebhook(cfg.Webhook); err != nil {
		return nil, err
	}
	if cfg.File == "" {
		return a, nil
	}
	compiler := authenticationcel.NewDefaultCompiler()
	a.issuers, err = reload.New(reload.Source[*issuers]{
		Flag: "--authentication-config", File: cfg.File,
		Make: func(content []byte, previous *issuers) (*issuers, error) {
			config, err := decode(content, compiler, cfg.PublicPaths, cfg.OwnIssuers)
			if err != nil {
				return nil, err
			}
			made, err := newIssuers(config, compiler, cfg.PublicPaths, previous)
			if err == nil {
				configmetrics.RecordAuthenticationConfigLastConfigInfo(cfg.Replica, string(content))
			}
			return made, err
		},
		Work: func(ctx context.Context, i *issuers) { i.work(ctx) },
		Reloaded: func(content []byte) {
			configmetrics.RecordAuthenticationConfigAutomaticReloadSuccess(cfg.Replica, string(content))
		},
		Refused: func() { configmetrics.RecordAuthenticationConfigAutomaticReloadFailure(cfg.Replica) },
	})
	return a, err
}

// Run keeps the issuers' keys up to date, and follows the file. It returns when ctx has ended and everything that it
// started. Tokens of keys that are known then are still let in.
func (a *Authentication) Run(ctx context.Context) {
	if a.issuers != nil {
		a.issuers.Run(ctx)
		return
	}
	<-ctx.Done()
}

// Close ends the calls of the webhook, for which no request waits any more, and its connections. It waits for the
// calls.
func (a *Authentication) Close() {
	if a.webhook != nil {
		a.webhook.close()
	}
}

// Methods returns how users are found out, in the order in which to try it: here, by keys that are known, and then by
// asking a webhook. None of them lets anybody in without a token.
func (a *Authentication) Methods() (here, asking []authenticator.Request) {
	if a.issuers != nil {
		here = append(here, authenticator.RequestFunc(a.byIssuers))
	}
	if a.webhook != nil {
		asking = append(asking, bearertoken.New(strangers{a.webhook}))
	}
	return here, asking
}

func (a *Authentication) byIssuers(req *http.Request) (*authenticator.Response, bool, error) {
	now, done := a.issuers.Use()
	defer done()
	return now.tokens.AuthenticateRequest(req)
}

// Anonymous lets anybody in on the public paths, or on fewer if the file says so.
func (a *Authentication) Anonymous() authenticator.Request {
	if a.issuers == nil {
		return a.anonymous
	}
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		now, done := a.issuers.Use()
		defer done()
		return now.anonymous.AuthenticateRequest(req)
	})
}

// Webhook says which webhook to ask about tokens.
type Webhook struct {
	// File names a kubeconfig that leads to the webhook. Empty: there is none. It is read at the start.
	File string
	// Version is the version of TokenReview to send: v1 or v1beta1.
	Version string
	// TTL is how long an answer is remembered, whether the token is good or not. 0: it is not.
	TTL time.Duration
}
