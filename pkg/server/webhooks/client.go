package webhooks

import (
	"fmt"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// Client returns a client configuration for the webhook that a kubeconfig file leads to, and what closes its idle
// connections. The files that the kubeconfig names are read now, and not again: client-go would follow them with a
// goroutine that nobody joins.
func Client(kubeconfig string, timeout time.Duration) (_ *rest.Config, closeIdle func(), _ error) {
	read, err := webhook.LoadKubeconfig(kubeconfig, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the kubeconfig %s: %w", kubeconfig, err)
	}
	if read.ExecProvider != nil || read.AuthProvider != nil {
		return nil, nil, fmt.Errorf("the kubeconfig %s must hold a certificate or a token: programs that make credentials are not run", kubeconfig)
	}
	if err := rest.LoadTLSFiles(read); err != nil {
		return nil, nil, fmt.Errorf("cannot read a file that the kubeconfig %s names: %w", kubeconfig, err)
	}
	read.CAFile, read.CertFile, read.KeyFile = "", "", ""
	transport, err := rest.TransportFor(read)
	if err != nil {
		return nil, nil, fmt.Errorf("the kubeconfig %s is not usable: %w", kubeconfig, err)
	}
	return &rest.Config{Host: read.Host, APIPath: read.APIPath, Transport: transport, Timeout: timeout, QPS: read.QPS}, func() {
		utilnet.CloseIdleConnectionsFor(transport)
	}, nil
}
