package command

import (
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"github.com/regent-project/regent/cmd/server/face/page"
)

func newUI() *cobra.Command {
	f := &observerFlags{}
	address := "127.0.0.1:0"
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Show an installation as a page in the browser",
		Long: `Serve a page on this machine that shows an installation: which replicas lead and led, what is wrong, controllers and
workspaces. It asks the kubeconfig's servers with the kubeconfig's credentials, for anybody who has the URL that it prints.
It serves until it is interrupted.

Servers serve the same page at /ui/ to users that they know, for example by a client certificate in the browser.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			servers, err := f.admin.places(!cmd.Flags().Changed("context"))
			if err != nil {
				return err
			}
			host, _, err := net.SplitHostPort(address)
			if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
				return usageError{fmt.Errorf("--listen %q must be a loopback address with a port, such as 127.0.0.1:8080: the page has the rights of the kubeconfig", address)}
			}
			ctx, stop := untilInterrupt(cmd.Context())
			defer stop()
			listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
			if err != nil {
				return fmt.Errorf("cannot listen: %w: give another --listen", err)
			}
			return page.New(servers).Serve(ctx, listener, func(url string) {
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", url)
			})
		},
	}
	f.admin.addTo(cmd.Flags(), defaultContext, "The kubeconfig's context: any that leads to a replica. If there is none of the default name, the current one is used.")
	cmd.Flags().StringVar(&address, "listen", address, "Loopback address and port of the page; port 0: any free one.")
	return cmd
}
