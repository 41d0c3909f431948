// Package ask asks replicas how their shard, or the installation, is doing, with the credentials of a kubeconfig. It
// finds another replica to ask if the first one does not answer.
package ask

import (
	"bytes"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Place is a server that can be asked.
type Place struct {
	// Context is the kubeconfig's context that leads there, or "" for a server that was named otherwise.
	Context string
	// Config is how to reach it. Its Host is the URL before /regent, /election and /metrics; a front's ends with
	// /shards/<shard>.
	Config *rest.Config
}

// replicaContext are the names that `regent dev` gives to the contexts of single replicas: replica-0, or eu1-replica-0
// in an installation.
var replicaContext = regexp.MustCompile(`(^|-)replica-[0-9]+$`)

// Places returns whom to ask, in this order: the server of the context, or the one named instead, and then single
// replicas of the same cluster, for when the first does not run. They are of the same cluster if they share the
// authority and the user.
func Places(file clientcmdapi.Config, context, server string) ([]Place, error) {
	first, err := placeOf(file, context)
	if err != nil {
		return nil, err
	}
	if server != "" {
		place := Place{Config: rest.CopyConfig(first.Config)}
		place.Config.Host = strings.TrimRight(server, "/")
		all := []Place{place}
		if _, prefix, ok := strings.Cut(first.Config.Host, "/shards/"); ok { // a front is asked for a shard
			behind := Place{Config: rest.CopyConfig(place.Config)}
			behind.Config.Host += "/shards/" + prefix
			all = append(all, behind)
		}
		return all, nil
	}
	all := []Place{first}
	for _, name := range slices.Sorted(maps.Keys(file.Contexts)) {
		if name == context || !replicaContext.MatchString(name) || !same(file, name, context) {
			continue
		}
		place, err := placeOf(file, name)
		if err != nil {
			return nil, err
		}
		all = append(all, place)
	}
	return all, nil
}

func placeOf(file clientcmdapi.Config, context string) (Place, error) {
	config, err := clientcmd.NewNonInteractiveClientConfig(file, context, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return Place{}, fmt.Errorf("context %q of the kubeconfig cannot be used: %w", context, err)
	}
	host, err := withoutCluster(config.Host)
	if err != nil {
		return Place{}, err
	}
	config.Host = host
	return Place{Context: context, Config: config}, nil
}

// withoutCluster returns a server's URL up to /clusters/...: what is asked for belongs to no logical cluster.
func withoutCluster(server string) (string, error) {
	at, err := url.Parse(server)
	if err != nil {
		return "", fmt.Errorf("the server that the kubeconfig names is no URL: %w", err)
	}
	at.Path, _, _ = strings.Cut(at.Path, "/clusters/")
	at.Path = strings.TrimRight(at.Path, "/")
	return at.String(), nil
}

// same reports whether two contexts are of one cluster.
func same(file clientcmdapi.Config, a, b string) bool {
	one, other := file.Contexts[a], file.Contexts[b]
	if one == nil || other == nil || one.AuthInfo != other.AuthInfo {
		return false
	}
	x, y := file.Clusters[one.Cluster], file.Clusters[other.Cluster]
	return x != nil && y != nil && x.CertificateAuthority == y.CertificateAuthority && bytes.Equal(x.CertificateAuthorityData, y.CertificateAuthorityData)
}

// At returns the place of another URL, which is reached with the same credentials.
func (p Place) At(url string) Place {
	config := rest.CopyConfig(p.Config)
	config.Host = strings.TrimRight(url, "/")
	return Place{Config: config}
}

// ofShard returns the place at which a front leads to another shard, if this place is a front's.
func (p Place) ofShard(shard string) (Place, bool) {
	before, _, ok := strings.Cut(p.Config.Host, "/shards/")
	return p.At(before + "/shards/" + shard), ok
}
