package controllertest

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election/fence"
)

// ErrRefused is the error of every request to a Server.
var ErrRefused = errors.New("connection refused")

// Server is the server's side of clients. Like a server that cannot be reached it answers nothing, but it records the
// token of each write, and what the write was decided on. It uses no network, whose goroutines Check would take for the
// controller's. The zero Server is ready to use.
type Server struct {
	mu     sync.Mutex
	term   fence.Token
	writes int
	// untokened are writes without the token of their term, undecided are writes that Decided would report.
	untokened, undecided []string
}

// Check does what the function Check does, with clients of s, which carry the token of each term. It also checks each
// write that reaches s: the write must carry that token, and say what it was decided on (see Decided). Other clients
// that the controller gets should be s.Clients without a token.
func (s *Server) Check(t *testing.T, d controllers.Descriptor, newDeps func(t *testing.T) controllers.Deps) {
	t.Helper()
	check(t, d, newDeps(t), s)
}

// Clients returns clients of s. With the zero Token their writes carry none.
func (s *Server) Clients(t testing.TB, token fence.Token) controllers.Clients {
	t.Helper()
	out, err := s.clients(token)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// begin begins a term and returns its clients.
func (s *Server) begin(token fence.Token) (controllers.Clients, error) {
	s.mu.Lock()
	s.term = token
	s.mu.Unlock()
	return s.clients(token)
}

// end returns the faulty writes since the last call.
func (s *Server) end() (untokened, undecided []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	untokened, undecided = s.untokened, s.undecided
	s.untokened, s.undecided = nil, nil
	return untokened, undecided
}

// RoundTrip implements http.RoundTripper.
func (s *Server) RoundTrip(req *http.Request) (*http.Response, error) {
	if changes(req) {
		s.note(req)
	}
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return nil, ErrRefused
}

// note records a write.
func (s *Server) note(req *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	token, err := fence.Parse(req.Header.Values(fence.Header))
	if err != nil || token != s.term {
		s.untokened = append(s.untokened, fmt.Sprintf("%s %s with the token %v, want %v", req.Method, req.URL.Path, token, s.term))
	}
	if err := decided(req); err != nil {
		s.undecided = append(s.undecided, fmt.Sprintf("%s %s %v", req.Method, req.URL.Path, err))
	}
}

func (s *Server) clients(token fence.Token) (controllers.Clients, error) {
	client := &http.Client{Transport: clusters.Transport(fence.Transport(fence.Of(token))(s))}
	return controllers.NewClients(&rest.Config{Host: "http://127.0.0.1", QPS: -1}, client)
}
