// Package page serves the page of package ui on this machine, and asks the servers of a kubeconfig for it, with the
// kubeconfig's credentials. Whoever knows the secret in the page's URL may do what the page does, and nobody else:
// other users of the machine, and other pages in the same browser, do not know it.
package page

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/regent-project/regent"
	"github.com/regent-project/regent/cmd/server/face/ask"
	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/pkg/server/ui"
)

const (
	// cookie, with the port, is the name of the one that has the secret, once the browser has shown it in the URL.
	// Browsers send a cookie to all ports of a host, so that two pages must not have one name.
	cookie = "regent-ui-"
	// parameter is the one of the URL that has the secret.
	parameter = "secret"
	// patience is how long one server may take to answer. It may ask others for two seconds.
	patience = 4 * time.Second
	// endPatience is how long requests may go on after the end of the page. Their contexts have ended.
	endPatience = time.Second
	// maxBody and maxAnswer are how many bytes a request and an answer may have.
	maxBody, maxAnswer = 64 << 10, 64 << 20
)

// allowlist are the requests that the page makes.
var allowlist = []struct {
	method string
	path   *regexp.Regexp
}{
	{http.MethodGet, regexp.MustCompile(`^/regent/v1/[a-z]+$`)},
	{http.MethodGet, regexp.MustCompile(`^/clusters/[a-z0-9:-]+/apis/tenancy\.kcp\.io/v1alpha1/workspaces$`)},
	{http.MethodPatch, regexp.MustCompile(`^/clusters/root/apis/core\.kcp\.io/v1alpha1/shards/[a-z0-9-]+$`)},
}

// Page is a server for one browser. Make it with New.
type Page struct {
	places *places
	secret string
	files  http.Handler
	host   string
	cookie string
	open   requests
}

// New returns a page whose questions go to the first of the servers that answers.
func New(servers []ask.Place) *Page {
	return &Page{places: newPlaces(servers), secret: rand.Text(), files: ui.Handler(regent.Docs)}
}

// Serve serves on a listener of a loopback address until ctx ends, and closes it. ready is called with the URL to open.
// Serve returns when all requests have ended. It may be called once.
func (p *Page) Serve(ctx context.Context, listener net.Listener, ready func(url string)) error {
	p.host = listener.Addr().String()
	p.cookie = cookie + p.host[strings.LastIndex(p.host, ":")+1:]
	defer p.places.close()
	defer p.open.end()
	server := &http.Server{
		Handler: http.NewCrossOriginProtection().Handler(p), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	ready(fmt.Sprintf("http://%s%s?%s=%s", p.host, ui.Path, parameter, p.secret))
	select {
	case err := <-ended:
		return errors.Join(fmt.Errorf("the page cannot be served: %w", err), server.Close())
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer cancel()
	if server.Shutdown(stopping) != nil {
		_ = server.Close() // a browser neither sends nor reads: its connection is cut
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("the page could not be served: %w", err)
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !p.open.begin() {
		return // the connection is about to be closed
	}
	defer p.open.finish()
	// Another page could have its own name lead to this address, and ask as if this were its server.
	if req.Host != p.host {
		http.Error(w, "open the page at http://"+p.host, http.StatusMisdirectedRequest)
		return
	}
	if secret := req.URL.Query().Get(parameter); req.URL.Path == ui.Path && p.knows(secret) {
		http.SetCookie(w, &http.Cookie{Name: p.cookie, Value: secret, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		w.Header().Set("Referrer-Policy", "no-referrer")
		http.Redirect(w, req, ui.Path, http.StatusSeeOther)
		return
	}
	if c, err := req.Cookie(p.cookie); err != nil || !p.knows(c.Value) {
		http.Error(w, "open the page by the whole URL that regent ui has printed", http.StatusUnauthorized)
		return
	}
	switch {
	case strings.HasPrefix(req.URL.Path, ui.Path):
		p.files.ServeHTTP(w, req)
	case req.Method == http.MethodPost && req.URL.Path == routing.StepDownPath:
		p.stepDown(w, req)
	case isAllowed(req):
		p.forward(w, req)
	default:
		http.Error(w, "the page does not ask for that", http.StatusNotFound)
	}
}

func (p *Page) knows(secret string) bool {
	return subtle.ConstantTimeCompare([]byte(secret), []byte(p.secret)) == 1
}

func isAllowed(req *http.Request) bool {
	for _, a := range allowlist {
		if req.Method == a.method && a.path.MatchString(req.URL.EscapedPath()) {
			return true
		}
	}
	return false
}

// forward asks the first server that answers.
func (p *Page) forward(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	got, err := p.places.ask(req.Context(), question{method: req.Method, uri: req.URL.RequestURI(), contentType: req.Header.Get("Content-Type"), body: body})
	if err != nil {
		refuse(w, http.StatusBadGateway, err)
		return
	}
	if req.URL.Path == status.InstallationPath && got.Code == http.StatusOK {
		p.places.learn(got.Body)
	}
	w.Header().Set("Content-Type", got.Header.Get("Content-Type"))
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(got.Code)
	_, _ = w.Write(got.Body) // on an error the browser has gone
}

// stepDown asks a replica of the shard to have its leader step down.
func (p *Page) stepDown(w http.ResponseWriter, req *http.Request) {
	var wish ask.Wish
	if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, maxBody)).Decode(&wish); err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	if epoch := req.URL.Query().Get("epoch"); epoch != "" {
		var err error
		if wish.Epoch, err = strconv.ParseInt(epoch, 10, 64); err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
	}
	if index := req.URL.Query().Get("range"); index != "" {
		number, err := strconv.Atoi(index)
		if err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		wish.Range = &number
	}
	client := ask.New(p.places.list())
	of, err := client.Installation(req.Context())
	if err != nil {
		refuse(w, http.StatusBadGateway, err)
		return
	}
	shard, err := ask.OneShard(of, req.URL.Query().Get("shard"))
	if err != nil {
		refuse(w, http.StatusNotFound, err)
		return
	}
	change, err := client.StepDown(req.Context(), of, shard, wish)
	if refusal := new(ask.Error); errors.As(err, &refusal) {
		refuse(w, refusal.Code, err)
		return
	}
	if err != nil {
		refuse(w, http.StatusBadGateway, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// on an error the browser has gone
	_ = json.NewEncoder(w).Encode(map[string]any{"replica": change.From, "epoch": change.Before})
}

// refuse answers as API servers do.
func refuse(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// on an error the browser has gone
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": err.Error()})
}
