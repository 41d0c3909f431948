package authentication

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	tokenwebhook "k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"

	"github.com/regent-project/regent/pkg/server/webhooks"
)

// callTimeout is how long the webhook may take to say whose a token is, all tries included.
const callTimeout = 5 * time.Second

// webhook asks a webhook whose a token is.
type webhook struct {
	authenticator.Token // remembers answers
	calls               *webhooks.Calls
	closeIdle           func()
}

// newWebhook returns nil if there is none.
func newWebhook(cfg Webhook) (*webhook, error) {
	if cfg.File == "" {
		return nil, nil
	}
	client, closeIdle, err := webhooks.Client(cfg.File, callTimeout)
	if err != nil {
		return nil, fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
	}
	token, err := tokenwebhook.New(client, cfg.Version, nil, *tokenwebhook.DefaultRetryBackoff())
	if err != nil {
		return nil, fmt.Errorf("--authentication-token-webhook-version: %w", err)
	}
	calls := webhooks.NewCalls(callTimeout)
	// Upstream's cache asks on goroutines of its own: a client that hangs up leaves the answer to others with the
	// same token. What they do is a call, and Close waits for it.
	return &webhook{cache.New(bounder{token, calls}, false, cfg.TTL, cfg.TTL), calls, closeIdle}, nil
}

// close ends the calls and the connections.
func (w *webhook) close() {
	w.calls.Close()
	w.closeIdle()
}

// bounder makes each question a call.
type bounder struct {
	authenticator.Token
	calls *webhooks.Calls
}

// AuthenticateToken implements authenticator.Token.
func (b bounder) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	ctx, end, err := b.calls.Begin(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("the token's user is not known: %w", err)
	}
	defer end()
	return b.Token.AuthenticateToken(ctx, token)
}
