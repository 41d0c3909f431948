// Command issuer is an OpenID Connect issuer, and a webhook that knows tokens and rights. Scenarios tell it what to
// say, by requests below /control/, and so do readers of docs/ACCESS.md: anybody is given a token with any claims.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/regent-project/regent/pkg/server/authentication/issuertest"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "issuer:", err)
		os.Exit(1)
	}
}

func run() error {
	address := flag.String("address", "127.0.0.1:0", "where to listen")
	cert := flag.String("cert", "", "file with the certificate")
	key := flag.String("key", "", "file with its key")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pair, err := tls.LoadX509KeyPair(*cert, *key)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *address)
	if err != nil {
		return err
	}
	h := &handler{issuer: &issuertest.Issuer{URL: "https://" + listener.Addr().String()}}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}}
	var serving sync.WaitGroup
	serving.Go(func() {
		<-ctx.Done()
		_ = server.Close()
	})
	defer serving.Wait()
	defer stop()
	fmt.Fprintln(os.Stderr, "Serving", h.issuer.URL)
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// handler answers discovery, keys and webhooks, and does what scenarios tell it.
type handler struct {
	issuer *issuertest.Issuer

	mu    sync.Mutex
	known map[string]authenticationv1.UserInfo // by token
	may   []string                             // "<user> <logical cluster>"
	hangs bool
}

func (h *handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var err error
	switch req.URL.Path {
	case "/control/token":
		var claims map[string]any
		if err = json.NewDecoder(req.Body).Decode(&claims); err == nil {
			var token string
			if token, err = h.issuer.Token(claims); err == nil {
				_, err = io.WriteString(w, token)
			}
		}
	case "/control/rotate":
		h.issuer.Rotate()
	case "/control/withdraw":
		h.issuer.Withdraw()
	case "/control/known":
		err = h.set(req, &h.known)
	case "/control/may":
		err = h.set(req, &h.may)
	case "/control/hangs":
		err = h.set(req, &h.hangs)
	case "/tokens":
		err = h.review(w, req)
	case "/rights":
		err = h.authorize(w, req)
	default:
		h.issuer.ServeHTTP(w, req)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// set sets a field to what the body says.
func (h *handler) set(req *http.Request, field any) error {
	content, err := io.ReadAll(req.Body)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if known, ok := field.(*map[string]authenticationv1.UserInfo); ok {
		*known = nil // Unmarshal would add to what is there
	}
	return json.Unmarshal(content, field)
}

// waits waits for the caller to give up, if the webhook hangs.
func (h *handler) waits(ctx context.Context) {
	h.mu.Lock()
	hangs := h.hangs
	h.mu.Unlock()
	if hangs {
		<-ctx.Done()
	}
}

func (h *handler) review(w http.ResponseWriter, req *http.Request) error {
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
		return err
	}
	h.waits(req.Context())
	h.mu.Lock()
	defer h.mu.Unlock()
	who, ok := h.known[review.Spec.Token]
	review.Spec.Token, review.Status = "", authenticationv1.TokenReviewStatus{Authenticated: ok, User: who}
	return json.NewEncoder(w).Encode(review)
}

func (h *handler) authorize(w http.ResponseWriter, req *http.Request) error {
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
		return err
	}
	h.waits(req.Context())
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, cluster := range review.Spec.Extra["authorization.kcp.io/cluster-name"] {
		review.Status.Allowed = slices.Contains(h.may, review.Spec.User+" "+cluster)
	}
	return json.NewEncoder(w).Encode(review)
}
