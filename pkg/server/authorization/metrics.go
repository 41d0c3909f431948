package authorization

import (
	"sync"

	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	configmetrics "k8s.io/apiserver/pkg/server/options/authorizationconfig/metrics"
	webhookmetrics "k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"
)

// metricsOf are upstream's metrics of webhooks, by name.
var metricsOf = struct {
	webhookmetrics.RequestMetrics
	webhookmetrics.WebhookMetrics
	authorizationcel.MatcherMetrics
}{webhookmetrics.NoopRequestMetrics{}, webhookmetrics.NewWebhookMetrics(), authorizationcel.NewMatcherMetrics()}

var registerMetrics = sync.OnceFunc(func() {
	configmetrics.RegisterMetrics()
	webhookmetrics.RegisterWebhookMetrics()
	authorizationcel.RegisterMetrics()
})
