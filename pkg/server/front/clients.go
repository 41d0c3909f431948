package front

import (
	"hash/maphash"
	"net/http"
	"net/netip"
	"strconv"
	"sync"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/connections"
)

// tokens are the clients whose tokens a shard has accepted. It is ready for use. All methods may be called at any time
// on any goroutine.
type tokens struct {
	mu       sync.Mutex
	accounts map[string]string // for whom their requests count
}

// maxTokens is how many accepted tokens are kept in mind. Beyond it all are forgotten, and accepted anew.
const maxTokens = 1 << 16

// record learns from a shard's answer to a request with a token, and takes off it what is not for the client. What
// one shard says of users is no other's: it must not use up what these have. A shard of an older version does not say
// whose a token is: each is a client then.
func (t *tokens) record(client, shard string, answer *http.Response) {
	of, name := client, answer.Header.Get(clusters.CountedAsHeader)
	if name != "" {
		of = "known " + hashOf(shard+" "+name) // however long it is, it takes no more memory
	}
	answer.Header.Del(clusters.CountedAsHeader)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch code := answer.StatusCode; {
	case code == http.StatusUnauthorized:
		delete(t.accounts, client)
	// others may come before the shard has looked at the token
	case name != "" || code < http.StatusMultipleChoices || code == http.StatusForbidden:
		if t.accounts == nil || len(t.accounts) >= maxTokens {
			t.accounts = map[string]string{}
		}
		t.accounts[client] = of
	}
}

// isAccepted reports whether a shard has accepted the token of a client.
func (t *tokens) isAccepted(client string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.accounts[client]
	return ok
}

// account returns for whom a client's requests count. A token that no shard has accepted counts for its sender's
// address: whoever makes up tokens must not take everybody's places.
func (t *tokens) account(client string, req *http.Request, who user.Info) string {
	if who != nil {
		return client
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if of, ok := t.accounts[client]; ok {
		return of
	}
	return addressOf(req)
}

var tokenSeed = maphash.MakeSeed()

// clientOf returns the client of a request. Tokens are not kept.
func clientOf(req *http.Request, who user.Info) string {
	if who != nil {
		return "user " + who.GetName()
	}
	if token := req.Header.Get("Authorization"); token != "" {
		return "token " + hashOf(token)
	}
	return addressOf(req)
}

func hashOf(text string) string { return strconv.FormatUint(maphash.String(tokenSeed, text), 16) }

func addressOf(req *http.Request) string {
	at, err := netip.ParseAddrPort(req.RemoteAddr)
	if err != nil {
		return "address " + req.RemoteAddr
	}
	return "address " + connections.NetworkOf(at.Addr()).String()
}
