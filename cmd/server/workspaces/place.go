// Package workspaces makes workspaces, and moves a kubeconfig between them. The context that it writes is that of kcp's
// plugin `kubectl ws`, so that both can be used in turns.
package workspaces

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/regent-project/regent/pkg/clusters"
)

// The contexts of the workspace that was entered last, and of the one before.
const (
	currentContext  = "workspace.kcp.io/current"
	previousContext = "workspace.kcp.io/previous"
)

// Place is where a context of a kubeconfig leads.
type Place struct {
	// Base is the URL of the server, without /clusters/.
	Base string
	// Path is of the workspace, or the name of its logical cluster. It is empty if the context leads to no
	// workspace.
	Path logicalcluster.Path
}

// PlaceOf returns where a context of a kubeconfig leads.
func PlaceOf(config *clientcmdapi.Config, context string) (Place, error) {
	c := config.Contexts[context]
	if c == nil {
		return Place{}, fmt.Errorf("the kubeconfig has no context %q: kubectl config get-contexts lists those that it has", context)
	}
	cluster := config.Clusters[c.Cluster]
	if cluster == nil {
		return Place{}, fmt.Errorf("context %q of the kubeconfig names a cluster %q that is not there", context, c.Cluster)
	}
	return parse(cluster.Server)
}

func parse(server string) (Place, error) {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		return Place{}, fmt.Errorf("the server %q of the kubeconfig is no URL", server)
	}
	before, path, found := strings.Cut(u.Path, "/clusters/")
	place := Place{}
	if found {
		path, _, _ = strings.Cut(path, "/")
		place.Path = logicalcluster.NewPath(path)
		u.Path = before
	}
	u.RawPath, u.Path = "", strings.TrimSuffix(u.Path, "/")
	place.Base = u.String()
	return place, nil
}

// URL returns the server of a kubeconfig that leads to a workspace.
func (p Place) URL() string { return p.Base + p.Path.RequestPath() }

// At returns the place of another workspace of the same server.
func (p Place) At(path logicalcluster.Path) Place { return Place{p.Base, path} }

// Resolve returns the path that an argument names: an absolute one (root:a, :root:a, system:admin), one below (a:b),
// the one above (..), root (:), or this one (.).
func (p Place) Resolve(argument string) (logicalcluster.Path, error) {
	switch {
	case argument == "" || argument == ".":
		if p.Path.Empty() {
			return p.Path, fmt.Errorf("the kubeconfig leads to no workspace: enter one, as with regent ws use root")
		}
		return p.Path, nil
	case argument == ":":
		return clusters.Root.Path(), nil
	}
	absolute := logicalcluster.NewPath(strings.TrimPrefix(argument, ":"))
	if first, _, _ := strings.Cut(absolute.String(), ":"); strings.HasPrefix(argument, ":") || first == clusters.Root.String() || first == "system" {
		return valid(absolute, argument)
	}
	at := p.Path
	if at.Empty() {
		at = clusters.Root.Path()
	}
	for part := range strings.SplitSeq(argument, ":") {
		if part != ".." {
			at = at.Join(part)
			continue
		}
		parent, ok := at.Parent()
		if !ok {
			return at, fmt.Errorf("%q has no workspace above it: give the whole path, as in root:team-a", at)
		}
		at = parent
	}
	return valid(at, argument)
}

func valid(path logicalcluster.Path, argument string) (logicalcluster.Path, error) {
	if !path.IsValid() {
		return path, fmt.Errorf("%q is no path of a workspace: give names divided by colons, as in root:team-a:web", argument)
	}
	return path, nil
}

// Enter makes a workspace the current one, in the kubeconfig's memory: the context that was current is the previous one
// from then on.
func Enter(config *clientcmdapi.Config, from string, to Place) {
	was := config.Contexts[from]
	before := *config.Clusters[was.Cluster]
	set(config, previousContext, &before, was)
	now := before
	now.Server = to.URL()
	set(config, currentContext, &now, was)
	config.CurrentContext = currentContext
}

func set(config *clientcmdapi.Config, name string, cluster *clientcmdapi.Cluster, like *clientcmdapi.Context) {
	context := *like
	context.Cluster = name
	config.Clusters[name], config.Contexts[name] = cluster, &context
}

// Previous returns the place that was current before the last Enter.
func Previous(config *clientcmdapi.Config) (Place, error) {
	if config.Contexts[previousContext] == nil {
		return Place{}, fmt.Errorf("no workspace was entered before: give a path, as in root:team-a")
	}
	return PlaceOf(config, previousContext)
}

// Alone returns a kubeconfig that has one context, which leads to a workspace as the user of another context.
func Alone(config *clientcmdapi.Config, from string, to Place) clientcmdapi.Config {
	out, was := *clientcmdapi.NewConfig(), config.Contexts[from]
	name := to.Path.String()
	cluster := *config.Clusters[was.Cluster]
	cluster.Server = to.URL()
	set(&out, name, &cluster, was)
	if user := config.AuthInfos[was.AuthInfo]; user != nil {
		out.AuthInfos[was.AuthInfo] = user
	}
	out.CurrentContext = name
	return out
}
