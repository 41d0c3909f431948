package command

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/regent-project/regent/cmd/server/face/view"
	"github.com/regent-project/regent/pkg/server/build"
)

func newDoctor() *cobra.Command {
	f := &observerFlags{interval: 2 * time.Second}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look at everything that an expert would look at, and say what to do",
		Long: `Look at what replicas say of themselves (as regent status does), at what they measure, and at what this machine sees of
them: latencies of the API and of etcd, alarms of etcd, file descriptors, renewals, fencing, refused requests, quotas, keys,
certificates, clocks and versions. The command also prints what it has looked at. It watches each replica for --interval,
and needs to reach them all.` + exitCodes,
		Example: `  regent doctor
  regent doctor --interval=30s -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := f.client(cmd)
			if err != nil {
				return err
			}
			if f.interval <= 0 {
				return usageError{fmt.Errorf("--interval %s must be more than 0", f.interval)}
			}
			of, err := f.installation(cmd.Context(), client)
			if err != nil {
				return err
			}
			findings := view.Examine(view.Evidence{Of: of, Replicas: client.Gather(cmd.Context(), of, f.interval), Version: build.Info().GitVersion, Now: time.Now()})
			if err := view.Report(cmd.OutOrStdout(), f.look(cmd), findings); err != nil {
				return err
			}
			return verdict(findings.Problems)
		},
	}
	f.addTo(cmd)
	f.addReplicaTo(cmd)
	cmd.Flags().DurationVar(&f.interval, "interval", f.interval, "How long to watch the counters.")
	return cmd
}
