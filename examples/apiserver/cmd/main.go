// Command apiserver is Kubernetes' sample-apiserver, of which several replicas share an etcd, and one has a controller
// at work. It is for a machine of one's own: whoever reaches it may do everything.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	"k8s.io/klog/v2"
	"k8s.io/sample-apiserver/pkg/cmd/server"

	"github.com/regent-project/regent/examples/apiserver/lead"
	"github.com/regent-project/regent/pkg/election/leader"
)

func main() {
	ctx := genericapiserver.SetupSignalContext()
	o := server.NewWardleServerOptions(os.Stdout, os.Stderr)
	// It has no Kubernetes behind it that would say who may do what.
	o.RecommendedOptions.Authentication, o.RecommendedOptions.Authorization = nil, nil
	o.RecommendedOptions.CoreAPI, o.RecommendedOptions.Admission = nil, nil
	o.RecommendedOptions.Features.EnablePriorityAndFairness = false
	cfg := leader.Config{Namespace: "default", Name: "wardle"}
	command := server.NewCommandStartWardleServer(ctx, o, false)
	command.Use, command.Short, command.Long = "apiserver", "Serve Flunders, and lead with a controller that stamps them", ""
	command.Flags().StringVar(&cfg.SecretFile, "probe-secret", "", "file with a secret that all replicas share, of at least 16 bytes: with it a crash is followed within milliseconds")
	command.RunE = func(cmd *cobra.Command, args []string) error {
		// cli.Run turns it off, and lines would not say of which Lease and term they are
		klog.EnableContextualLogging(true)
		if err := o.Validate(args); err != nil {
			return err
		}
		return run(cmd.Context(), o, cfg)
	}
	os.Exit(cli.Run(command))
}

// run serves until ctx ends.
func run(ctx context.Context, o *server.WardleServerOptions, cfg leader.Config) error {
	if at := o.RecommendedOptions.SecureServing.BindAddress; !at.IsUnspecified() {
		cfg.AdvertiseAddress = at.String() // replicas hear each other where they are served
	}
	config, err := o.Config()
	if err != nil {
		return err
	}
	guard, err := lead.Guard(ctx, o.RecommendedOptions.Etcd, config.GenericConfig)
	if err != nil {
		return err
	}
	s, err := config.Complete().New()
	if err != nil {
		return err
	}
	stamps := stamps(config.GenericConfig.LoopbackClientConfig, o.SharedInformerFactory.Wardle().V1alpha1().Flunders())
	if err := lead.Add(s.GenericAPIServer, guard, cfg, stamps); err != nil { //nolint:contextcheck // its hooks give it one
		return err
	}
	s.GenericAPIServer.AddPostStartHookOrDie("start-informers", func(hook genericapiserver.PostStartHookContext) error {
		o.SharedInformerFactory.Start(hook.Done())
		return nil
	})
	return s.GenericAPIServer.PrepareRun().RunWithContext(ctx)
}
