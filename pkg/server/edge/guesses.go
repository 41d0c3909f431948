package edge

import (
	"context"
	"hash/maphash"
	"net/http"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/regent-project/regent/pkg/server/connections"
)

const (
	// guessesPerSecond is how many requests whose credentials are refused are looked at for an address, and
	// guessesAtOnce how many after a pause. Each is a line of the audit log, and a call of the webhook that knows
	// tokens.
	guessesPerSecond, guessesAtOnce = 20, 200
	// maxKnown and maxGuessers bound what is kept in mind. Beyond it all is forgotten, and learnt anew.
	maxKnown, maxGuessers = 1 << 16, 1 << 14
)

// guesses bound how often credentials are refused. Credentials that were accepted before always pass, and so do those
// that this replica knows without asking anybody: a client that makes up tokens does not lock out others of its
// address. Only new tokens that nobody but the webhook knows are told to try again. All methods may be called at any
// time on any goroutine.
type guesses struct {
	here authenticator.Request // knows users without asking anybody outside of the installation
	seed maphash.Seed

	mu       sync.Mutex
	good     map[uint64]struct{} // what was accepted, hashed
	guessers map[netip.Prefix]*rate.Limiter
}

func newGuesses(here authenticator.Request) *guesses {
	return &guesses{here: here, seed: maphash.MakeSeed(), good: map[uint64]struct{}{}, guessers: map[netip.Prefix]*rate.Limiter{}}
}

// guess is what a request shows, and from where. The first answer about it counts: later ones are about tokens that the
// request asks about.
type guess struct {
	of       *guesses
	hash     uint64
	from     netip.Prefix
	answered sync.Once
}

type guessKey struct{}

// begin returns the request for which an answer is learnt, or false if the address has guessed too often.
func (g *guesses) begin(req *http.Request) (*http.Request, bool) {
	a := &guess{of: g, hash: g.hash(req, req.Header.Get("Authorization"), strings.Join(req.Header.Values("Sec-Websocket-Protocol"), ","))}
	if g.mustWait(req, a) && !g.isKnownHere(req) {
		return nil, false
	}
	return req.WithContext(context.WithValue(req.Context(), guessKey{}, a)), true
}

// isKnownHere reports whether this replica knows by itself who asks.
func (g *guesses) isKnownHere(req *http.Request) bool {
	_, ok, err := g.here.AuthenticateRequest(req.Clone(req.Context())) // which takes the token off the header
	return ok && err == nil
}

// mustWait says from where a guess is, and reports whether too many from there were wrong, unless it was right before.
func (g *guesses) mustWait(req *http.Request, a *guess) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	a.from = networkOf(req.RemoteAddr)
	// a front, which asks with the token of somebody, and says from where
	if _, member := g.good[g.hash(req)]; member {
		if client, err := netip.ParseAddr(req.Header.Get("X-Forwarded-For")); err == nil {
			a.from = connections.NetworkOf(client)
		}
	}
	_, good := g.good[a.hash]
	of := g.guessers[a.from]
	return !good && of != nil && of.Tokens() < 1
}

// hash returns what stands for the certificate of a request and further credentials.
func (g *guesses) hash(req *http.Request, more ...string) uint64 {
	var h maphash.Hash
	h.SetSeed(g.seed)
	if req.TLS != nil && len(req.TLS.PeerCertificates) > 0 {
		_, _ = h.Write(req.TLS.PeerCertificates[0].Raw)
	}
	for _, text := range more {
		if text != "" {
			_, _ = h.WriteString("\x00" + text)
		}
	}
	return h.Sum64()
}

func networkOf(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	return connections.NetworkOf(at.Addr())
}

// learning returns an authenticator from whose answers guesses learn.
func (g *guesses) learning(next authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		found, ok, err := next.AuthenticateRequest(req)
		if a, there := req.Context().Value(guessKey{}).(*guess); there {
			a.answered.Do(func() { a.learn(err == nil && ok && found.User.GetName() != user.Anonymous) })
		}
		return found, ok, err
	})
}

// learn notes whether what was shown is good. An address may get into debt by requests that were under way together,
// and has to wait longer then.
func (a *guess) learn(good bool) {
	g := a.of
	g.mu.Lock()
	defer g.mu.Unlock()
	if good {
		if len(g.good) >= maxKnown {
			clear(g.good)
		}
		g.good[a.hash] = struct{}{}
		return
	}
	delete(g.good, a.hash)
	of := g.guessers[a.from]
	if of == nil {
		if len(g.guessers) >= maxGuessers {
			clear(g.guessers)
		}
		of = rate.NewLimiter(guessesPerSecond, guessesAtOnce)
		g.guessers[a.from] = of
	}
	of.Reserve()
}
