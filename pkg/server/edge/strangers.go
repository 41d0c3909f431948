package edge

import (
	"fmt"
	"net/http"
	"slices"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/regent-project/regent/pkg/server/identity"
)

const (
	// MaxURL is how long the path and query of a URL may be together, in bytes. The audit log has them, whoever
	// asks.
	MaxURL = 32 << 10
	// MaxURLOfStrangers is the same for requests without credentials.
	MaxURLOfStrangers = 2 << 10
	// strangersPerSecond is how many requests without credentials are looked at, and strangersAtOnce how many after
	// a pause. Each is a line of the audit log.
	strangersPerSecond, strangersAtOnce = 20, 200
)

// withBoundedTraces returns a handler that bounds what requests leave in logs: the length of URLs, and how often
// whoever shows no credentials, or wrong ones, is told so. What is refused here is in no log. Public paths are not
// bounded in number: they are in none either.
func withBoundedTraces(next http.Handler, s runtime.NegotiatedSerializer, wrong *guesses) http.Handler {
	strangers := rate.NewLimiter(strangersPerSecond, strangersAtOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		most, stranger := MaxURL, isStranger(req)
		if stranger {
			most = MaxURLOfStrangers
		}
		switch n := max(len(req.URL.Path), len(req.URL.RawPath)) + len(req.URL.RawQuery); {
		case n > most:
			refuseHead(w, req, s, http.StatusRequestURITooLong, fmt.Sprintf("the URL has %d bytes and may have %d: use shorter names and selectors", n, most))
		case stranger && !slices.Contains(identity.PublicPaths, req.URL.Path) && !strangers.Allow():
			refuse(w, req, s, apierrors.NewTooManyRequests("too many requests without credentials: show some, or try again", 1))
		case stranger:
			next.ServeHTTP(w, req)
		default:
			if of, ok := wrong.begin(req); ok {
				next.ServeHTTP(w, of)
				return
			}
			refuse(w, req, s, apierrors.NewTooManyRequests("too many wrong credentials from this address: show others, or try again", 1))
		}
	})
}

// isStranger reports whether a request shows no credentials of any kind.
func isStranger(req *http.Request) bool {
	return req.Header.Get("Authorization") == "" && len(req.Header.Values("Sec-Websocket-Protocol")) == 0 && (req.TLS == nil || len(req.TLS.PeerCertificates) == 0)
}
