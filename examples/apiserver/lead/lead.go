// Package lead is all that an API server on k8s.io/apiserver gains: its replicas elect one whose controllers work, and
// what a leader writes after its term is refused.
package lead

import (
	"context"
	"net/http"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
	"github.com/regent-project/regent/pkg/election/etcdfence"
	"github.com/regent-project/regent/pkg/election/leader"
	"github.com/regent-project/regent/pkg/election/metrics"
)

// Guard guards the stores of a server. Call it when the options of etcd were applied to config, and before the server
// is made.
func Guard(ctx context.Context, etcd *options.EtcdOptions, config *genericapiserver.RecommendedConfig) (*etcdfence.Guard, error) {
	guard, err := etcdfence.Install(ctx, etcdfence.Config{Etcd: etcd, Stored: config.RESTOptionsGetter})
	if err != nil {
		return nil, err
	}
	config.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		return genericapiserver.DefaultBuildHandlerChain(guard.Handler(handler), c)
	}
	return guard, nil
}

// Add has the server's replicas elect one, in which the controllers work. cfg names the Lease, which is kept in the
// server's own etcd.
func Add(server *genericapiserver.GenericAPIServer, guard *etcdfence.Guard, cfg leader.Config, set ...control.Descriptor[election.Term]) error {
	if err := metrics.Register(legacyregistry.Registerer()); err != nil { // which the server serves at /metrics
		return err
	}
	leases, err := guard.LeaseClient(cfg.Namespace)
	if err != nil {
		return err
	}
	cfg.Fenced, cfg.Adjust = true, func(e *election.Config) { e.Client = leases }
	l, err := leader.New(server.LoopbackClientConfig, cfg)
	if err != nil {
		leases.Close()
		return err
	}
	lead := supervisor.Lead(set...)
	server.AddPostStartHookOrDie("lead", func(hook genericapiserver.PostStartHookContext) error { return l.Start(hook, lead) })
	return server.AddPreShutdownHook("lead", func() error {
		defer leases.Close()
		return l.Stop()
	})
}
