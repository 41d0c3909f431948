package perterm

import (
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/fence"
)

// config returns the configuration of the clients that the program makes in the term, and of its Events. They use the
// connections of the process: a configuration with certificates would have client-go make, and keep, connections for
// each term whenever it cannot tell that two configurations are equal.
func (t *tenancy) config() (*rest.Config, error) {
	process := t.process.GetConfig()
	host, _, err := rest.DefaultServerUrlFor(process)
	if err != nil {
		return nil, fmt.Errorf("the manager of the process has a configuration without a server: %w", err)
	}
	config := &rest.Config{
		Host: host.String(), APIPath: process.APIPath, ContentConfig: process.ContentConfig, DisableCompression: process.DisableCompression,
		UserAgent: process.UserAgent, QPS: process.QPS, Burst: process.Burst, RateLimiter: process.RateLimiter, Timeout: process.Timeout,
		WarningHandler: process.WarningHandler, WarningHandlerWithContext: process.WarningHandlerWithContext,
		// it has the credentials, and tells the term of a request by its context
		Transport: t.process.GetHTTPClient().Transport,
	}
	if t.term.Fenced() {
		config.Wrap(fence.Transport(fence.Of(t.term.Token()))) // also for a request with a context of its own
		config.Wrap(fence.OnFenced(func(*http.Request) { t.fail(election.Fenced) }))
	}
	return config, nil
}
