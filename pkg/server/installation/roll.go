package installation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/fetch"
)

// Others returns the members beside the root shard, in words: those of an installation that a lone shard does not have.
func (a *Admin) Others(ctx context.Context) ([]string, error) {
	root, err := a.root(ctx)
	if err != nil {
		return nil, err
	}
	all, err := a.members(ctx)
	if err != nil {
		return nil, err
	}
	var others []string
	for _, member := range all {
		if member.Name != root.Name {
			others = append(others, "shard "+member.Name)
		}
	}
	for name := range frontsOf(root) {
		others = append(others, "front "+name)
	}
	return others, nil
}

// ErrRefused says that a server does not accept the credentials.
var ErrRefused = errors.New("it does not accept the certificate")

// acceptsTimeout is how long a server may take to answer.
const acceptsTimeout = 10 * time.Second

// Accepts returns an error unless the server that config names is trusted by config, and accepts its credentials (else
// ErrRefused).
func Accepts(ctx context.Context, config *rest.Config) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("cannot use the kubeconfig: %w", err)
	}
	defer client.CloseIdleConnections()
	host, _, _ := strings.Cut(config.Host, "/clusters/")
	return accepts(ctx, client, host+clusters.RequestPath(clusters.Root)+"/api")
}

// accepts returns an error unless a server is trusted, and answers (ErrRefused: it does not know the client).
func accepts(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, acceptsTimeout)
	defer cancel()
	err := fetch.Check(ctx, client.Do, url)
	if refusal := (*fetch.Refusal)(nil); errors.As(err, &refusal) && refusal.Code == http.StatusUnauthorized {
		return fmt.Errorf("%s: %w", url, ErrRefused)
	}
	if err != nil {
		return fmt.Errorf("cannot ask for %s: %w", url, err)
	}
	return nil
}
