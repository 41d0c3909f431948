package ask

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/server/fetch"
)

const (
	// patience is how long one server may take to answer. The server itself waits for others for two seconds.
	patience = 6 * time.Second
	// maxAnswer is how many bytes an answer may have.
	maxAnswer = 64 << 20
)

// Client asks. It is for one goroutine at a time.
type Client struct {
	places []Place
	// Say is told, once for each, which servers do not answer, and who was asked instead.
	Say           func(line string)
	announcements map[string]bool
}

// New returns a Client that asks the first of the places that answers.
func New(places []Place) *Client {
	return &Client{places: places, Say: func(string) {}, announcements: map[string]bool{}}
}

// Error is an answer that is a refusal.
type Error struct {
	// Server is the one that answered, Code with which HTTP status.
	Server  string
	Code    int
	Message string
	// isReplica: the server understood what was asked of it, and says no. It has told of itself before, so it is a
	// replica.
	isReplica bool
}

// Error implements error.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s answers %d %s: %s", e.Server, e.Code, http.StatusText(e.Code), e.Message)
	switch e.Code {
	case http.StatusNotFound:
		if !e.isReplica {
			text += ": it may be no replica, or one of an older version"
		}
	case http.StatusUnauthorized:
		text += ": the kubeconfig's credentials are not this server's"
	case http.StatusForbidden:
		text += ": docs/ACCESS.md says how to allow it"
	}
	return text
}

// isFinal reports whether another server would give the same answer.
func isFinal(err error) bool {
	var refusal *Error
	return errors.As(err, &refusal) && (refusal.Code == http.StatusUnauthorized || refusal.Code == http.StatusForbidden || refusal.Code == http.StatusBadRequest)
}

// NeverSent reports whether a server cannot have seen a request, because there was no connection to it.
func NeverSent(err error) bool {
	var fault *net.OpError
	return errors.As(err, &fault) && fault.Op == "dial"
}

// get asks the places one after the other, and decodes the first answer. The place that answered is asked first from
// then on.
func (c *Client) get(ctx context.Context, path string, into any) error {
	place, err := first(ctx, c.places, path, into, c.silent)
	if err != nil {
		return err
	}
	if host := place.Config.Host; host != c.places[0].Config.Host {
		by := host
		if place.Context != "" {
			by += fmt.Sprintf(" (context %s of the kubeconfig)", place.Context)
		}
		c.tell(by, "asked %s instead", by)
		others := []Place{place}
		for _, p := range c.places {
			if p.Config.Host != host {
				others = append(others, p)
			}
		}
		c.places = others
	}
	return nil
}

func (c *Client) silent(p Place, err error) { c.tell(p.Config.Host, "%v", err) }

func (c *Client) tell(about, format string, args ...any) {
	if !c.announcements[about] {
		c.announcements[about] = true
		c.Say(fmt.Sprintf(format, args...))
	}
}

// first asks places one after the other until one answers, and returns it. silent is told of those that do not, if
// another one is asked.
func first(ctx context.Context, places []Place, path string, into any, silent func(Place, error)) (Place, error) {
	var faults []error
	for i, place := range places {
		err := place.do(ctx, http.MethodGet, path, nil, into)
		if err == nil {
			return place, nil
		}
		faults = append(faults, err)
		if isFinal(err) || ctx.Err() != nil {
			break
		}
		if i < len(places)-1 && silent != nil {
			silent(place, err)
		}
	}
	if len(faults) == 0 {
		return Place{}, errors.New("there is no server to ask: none of them has told its URL")
	}
	if silent != nil && len(faults) > 1 {
		return Place{}, nobody(faults)
	}
	return Place{}, errors.Join(faults...)
}

// nobody is that no place answers. It says why the last one does not: of the others that was told when the next one was
// asked.
type nobody []error

// Error implements error.
func (n nobody) Error() string { return n[len(n)-1].Error() }

// Unwrap is for errors.Is and errors.As.
func (n nobody) Unwrap() []error { return n }

// do makes one request, and decodes the answer as JSON unless into is a *[]byte.
func (p Place) do(ctx context.Context, method, path string, body []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client, err := p.Client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	return p.send(ctx, client, method, path, body, into)
}

// Get makes one request with the caller's client, which has the credentials, and decodes the answer.
func (p Place) Get(ctx context.Context, client *http.Client, path string, into any) error {
	return p.send(ctx, client, http.MethodGet, path, nil, into)
}

// Client returns an HTTP client of its own, so that its connections end with it.
func (p Place) Client() (*http.Client, error) {
	config, err := p.tls()
	if err != nil {
		return nil, err
	}
	next, err := rest.HTTPWrappersForConfig(p.Config, &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, Proxy: http.ProxyFromEnvironment})
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig's credentials for %s cannot be used: %w", p.Config.Host, err)
	}
	return &http.Client{Transport: next}, nil
}

func (p Place) tls() (*tls.Config, error) {
	config, err := rest.TLSConfigFor(p.Config)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig's credentials for %s cannot be used: %w", p.Config.Host, err)
	}
	return config, nil
}

// address is what to dial.
func (p Place) address() string {
	at, err := url.Parse(p.Config.Host)
	if err != nil {
		return ""
	}
	return net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), "443"))
}

func (p Place) send(ctx context.Context, client *http.Client, method, path string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, p.Config.Host+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("cannot ask %s: %w", p.Config.Host, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	answer, err := fetch.Do(client.Do, req, maxAnswer)
	if silent := (*url.Error)(nil); errors.As(err, &silent) { // it has the method and the URL, too
		return fmt.Errorf("%s does not answer: %w", p.Config.Host, silent.Err)
	}
	if err != nil {
		return fmt.Errorf("%s%s: %w", p.Config.Host, path, err)
	}
	if refusal := answer.Refusal(); refusal != nil {
		return &Error{Server: p.Config.Host, Code: refusal.Code, Message: refusal.Message, isReplica: method == http.MethodPost}
	}
	if raw, ok := into.(*[]byte); ok {
		*raw = answer.Body
		return nil
	}
	if err := answer.Decode(into); err != nil {
		return fmt.Errorf("%s%s: %w", p.Config.Host, path, err)
	}
	return nil
}
