package command

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/regent-project/regent/cmd/server/face/ask"
	"github.com/regent-project/regent/pkg/server/installation"
)

// defaultKubeconfig is the file that a replica with the default root directory writes.
const defaultKubeconfig = ".regent/admin.kubeconfig"

// adminFlags say how a command reaches a server as its administrator.
type adminFlags struct {
	kubeconfig, context, server string
}

// addTo adds the flags, with a default context and what that is for.
func (f *adminFlags) addTo(flags *pflag.FlagSet, context, usage string) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "The admin's kubeconfig. Default: $KUBECONFIG, or "+defaultKubeconfig+".")
	flags.StringVar(&f.context, "context", context, usage)
	flags.StringVar(&f.server, "server", "", "URL of the replica to ask, such as https://10.0.0.1:6443, if the kubeconfig's server is down.")
}

// check returns what is wrong with the flags.
func (f *adminFlags) check() error {
	to, err := url.Parse(f.server)
	if f.server != "" && (err != nil || to.Scheme != "https" || to.Host == "" || strings.Trim(to.Path, "/") != "") {
		return usageError{fmt.Errorf("--server %q is no URL of a replica: give https://<host>:<port>", f.server)}
	}
	return nil
}

// rules say where the kubeconfig is. As a plugin of kubectl this program looks where kubectl does.
func (f *adminFlags) rules() *clientcmd.ClientConfigLoadingRules {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if rules.ExplicitPath = f.kubeconfig; f.kubeconfig == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" && !isPlugin() {
		rules.ExplicitPath = defaultKubeconfig
	}
	return rules
}

// config returns how to reach the server.
func (f *adminFlags) config() (*rest.Config, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(f.rules(), &clientcmd.ConfigOverrides{CurrentContext: f.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("cannot read the admin's kubeconfig, give --kubeconfig: %w", err)
	}
	if f.server == "" {
		return config, nil
	}
	to, err := url.Parse(f.server)
	if err != nil {
		return nil, err
	}
	from, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("the server that the kubeconfig names is no URL: %w", err)
	}
	config.Host = to.JoinPath(from.Path).String()
	return config, nil
}

// places returns whom to ask how an installation is doing. If the kubeconfig has no context of the default name, its
// current one is taken: what is asked for belongs to no logical cluster.
func (f *adminFlags) places(isDefault bool) ([]ask.Place, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	file, err := f.rules().Load()
	if err != nil {
		return nil, fmt.Errorf("cannot read the admin's kubeconfig, give --kubeconfig: %w", err)
	}
	if len(file.Contexts) == 0 {
		return nil, fmt.Errorf("cannot read the admin's kubeconfig, give --kubeconfig: there is no context in %s", strings.Join(f.rules().GetLoadingPrecedence(), ", "))
	}
	context := f.context
	if file.Contexts[context] == nil && isDefault {
		context = file.CurrentContext
	}
	if file.Contexts[context] == nil {
		return nil, usageError{fmt.Errorf("there is no context %q in the kubeconfig: there are %s", context, strings.Join(slices.Sorted(maps.Keys(file.Contexts)), ", "))}
	}
	return ask.Places(*file, context, f.server)
}

// ofInstallation returns the installation's administrator.
func (f *adminFlags) ofInstallation() (*installation.Admin, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	return installation.New(config)
}
