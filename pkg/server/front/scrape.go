package front

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/maphash"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/regent-project/regent/pkg/server/routing"
)

// metricsPath is that of the front's own metrics. Those of a shard's replica are at /shards/<name>/metrics.
const metricsPath = "/metrics"

// serveMetrics serves the front's own metrics, to whom the root shard serves its own.
func (f *Front) serveMetrics(x *exchange, req *http.Request, client string) {
	if err := f.mayScrape(req, x.who, client); err != nil {
		refuse(x, err)
		return
	}
	f.measure()
	legacyregistry.Handler().ServeHTTP(x, req)
}

// mayScrape returns an error unless somebody may read the front's metrics. The front knows neither bindings nor tokens.
// So it asks the root shard for its metrics, as that user: whoever gets them may have the front's, too.
//
// Metrics are needed most while the root shard does not answer. Whom it has let in within grantAge is let in then.
func (f *Front) mayScrape(req *http.Request, who user.Info, client string) error {
	if isAdministrator(who) {
		return nil
	}
	asker := grantee(who, req.Header.Get("Authorization"))
	status, err := f.askForMetrics(req, who, client)
	switch {
	case err == nil && status == http.StatusOK:
		f.grants.give(asker)
		return nil
	case err == nil && status == http.StatusForbidden:
		f.grants.take(asker)
		return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New(
			"a ClusterRoleBinding in system:admin of the root shard must let you get /metrics: ask the operator of the installation"))
	case err == nil && status == http.StatusUnauthorized && who == nil:
		f.grants.take(asker)
		return apierrors.NewUnauthorized("the root shard does not know the token")
	case err == nil && status == http.StatusUnauthorized:
		err = errNotAccepted
	case err == nil:
		err = fmt.Errorf("its answer has status %d", status)
	}
	if f.grants.has(asker) {
		return nil
	}
	return &noAnswer{routing.NewUnavailable("the root shard does not say whether you may read metrics"), err}
}

// scrapeTimeout is how long the root shard may take to say who may read metrics: scrapers wait for some ten seconds.
const scrapeTimeout = 2 * time.Second

// askForMetrics asks the root shard for its metrics, as a user, and returns the status of its answer.
func (f *Front) askForMetrics(req *http.Request, who user.Info, client string) (int, error) {
	root, ok := f.shard(f.cfg.Membership.Root.Name)
	if !ok {
		return 0, errors.New("this front does not know it yet")
	}
	ctx, cancel := context.WithTimeout(req.Context(), scrapeTimeout)
	defer cancel()
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+metricsPath, nil)
	if err != nil {
		return 0, fmt.Errorf("cannot make the request: report this fault of the front: %w", err)
	}
	if token := req.Header.Get("Authorization"); token != "" {
		ask.Header.Set("Authorization", token)
	}
	identify(ask.Header, who)
	answer, err := root.replicas.send(ask, maphash.String(clientSeed, client))
	if err != nil {
		return 0, err
	}
	_ = answer.Body.Close() // the status says it all
	if who == nil {
		f.tokens.record(client, root.name, answer)
	}
	return answer.StatusCode, nil
}

// grantAge is for how long somebody may read metrics whom the root shard has let in, while it does not answer.
const grantAge = time.Hour

// maxGrants is how many are kept in mind. Beyond it all are forgotten, and asked for anew.
const maxGrants = 1 << 10

// grants are those whom the root shard has let in, and when. It is ready for use. All methods may be called at any time
// on any goroutine.
type grants struct {
	mu sync.Mutex
	at map[[sha256.Size]byte]time.Time
}

// grantee tells a user from all others: by name and groups, or by the token. Tokens are not kept.
func grantee(who user.Info, token string) [sha256.Size]byte {
	if who == nil {
		return sha256.Sum256([]byte("token\n" + token))
	}
	return sha256.Sum256([]byte("user\n" + who.GetName() + "\n" + strings.Join(who.GetGroups(), "\n")))
}

func (g *grants) give(who [sha256.Size]byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.at == nil || len(g.at) >= maxGrants {
		g.at = map[[sha256.Size]byte]time.Time{}
	}
	g.at[who] = time.Now()
}

func (g *grants) take(who [sha256.Size]byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.at, who)
}

func (g *grants) has(who [sha256.Size]byte) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, ok := g.at[who]
	return ok && time.Since(at) < grantAge
}
