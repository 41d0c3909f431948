package authorization

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/load"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	authorizationwebhook "k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/server/webhooks"
)

// rbacType is the file's word for the clusters' own roles and bindings.
const rbacType = "RBAC"

// chain is what one content of the file says: webhooks in their order, and nil where RBAC stands.
type chain struct{ entries []*webhook }

func newChain(content []byte, compiler authorizationcel.Compiler) (*chain, error) {
	config, err := decode(content, compiler)
	if err != nil {
		return nil, err
	}
	made := &chain{}
	for i, entry := range config.Authorizers {
		if entry.Type == rbacType {
			made.entries = append(made.entries, nil)
			continue
		}
		hook, err := newWebhook(entry, compiler)
		if err != nil {
			return nil, fmt.Errorf("authorizers[%d].webhook: %w", i, err)
		}
		made.entries = append(made.entries, hook)
	}
	return made, nil
}

func decode(content []byte, compiler authorizationcel.Compiler) (*apiserver.AuthorizationConfiguration, error) {
	if len(content) == 0 {
		return nil, fmt.Errorf("is empty, must be an AuthorizationConfiguration of apiserver.config.k8s.io")
	}
	config, err := load.LoadFromData(content)
	if err != nil {
		return nil, err
	}
	isRBAC := func(a apiserver.AuthorizerConfiguration) bool { return a.Type == rbacType }
	for i, entry := range config.Authorizers {
		if entry.Type != "" && entry.Type != apiserver.TypeWebhook && !isRBAC(entry) {
			return nil, fmt.Errorf("authorizers[%d].type: %s is not supported: there are Webhook and RBAC", i, entry.Type)
		}
	}
	if err := validation.ValidateAuthorizationConfiguration(compiler, nil, config, sets.New("Webhook", rbacType), sets.New("Webhook")).ToAggregate(); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(config.Authorizers, isRBAC) {
		return nil, fmt.Errorf("authorizers: RBAC is always on: list it (type: RBAC, name: rbac) where its place among the webhooks is, for most uses first")
	}
	for i, entry := range config.Authorizers {
		if entry.Webhook != nil && entry.Webhook.ConnectionInfo.Type != apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile {
			return nil, fmt.Errorf("authorizers[%d].webhook.connectionInfo.type: %s is not supported: give KubeConfigFile", i, entry.Webhook.ConnectionInfo.Type)
		}
	}
	return config, nil
}

// closeIdle closes the connections on which no call is under way.
func (c *chain) closeIdle() {
	for _, hook := range c.entries {
		if hook != nil {
			hook.closeIdle()
		}
	}
}

// webhook is one that may be asked. Upstream's remembers its answers.
type webhook struct {
	name      string
	asked     *authorizationwebhook.WebhookAuthorizer
	timeout   time.Duration
	closeIdle func()
}

func newWebhook(entry apiserver.AuthorizerConfiguration, compiler authorizationcel.Compiler) (*webhook, error) {
	cfg := entry.Webhook
	client, closeIdle, err := webhooks.Client(*cfg.ConnectionInfo.KubeConfigFile, cfg.Timeout.Duration)
	if err != nil {
		return nil, err
	}
	client.Transport = webhooks.NewCalls(cfg.Timeout.Duration).Transport(client.Transport)
	allowed, refused := cfg.AuthorizedTTL.Duration, cfg.UnauthorizedTTL.Duration
	if !cfg.CacheAuthorizedRequests {
		allowed = 0
	}
	if !cfg.CacheUnauthorizedRequests {
		refused = 0
	}
	onError := authorizer.DecisionDeny
	if cfg.FailurePolicy == apiserver.FailurePolicyNoOpinion {
		onError = authorizer.DecisionNoOpinion
	}
	asked, err := authorizationwebhook.New(client, cfg.SubjectAccessReviewVersion, allowed, refused, *authorizationwebhook.DefaultRetryBackoff(), onError,
		cfg.MatchConditions, entry.Name, metricsOf, compiler)
	if err != nil {
		return nil, err
	}
	return &webhook{entry.Name, asked, cfg.Timeout.Duration, closeIdle}, nil
}

// authorize gives all tries together the time that the file gives one. Users who ask are told its error, and upstream's
// has the webhook's address: that goes to the log only.
func (w *webhook) authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	decision, reason, err := w.asked.Authorize(ctx, attributes)
	if err != nil {
		klog.FromContext(ctx).Error(err, "An authorization webhook has not answered", "webhook", w.name)
		err = fmt.Errorf("the authorization webhook %q has not answered: try again, or ask an administrator of the shard to look into its log", w.name)
	}
	return decision, reason, err
}
