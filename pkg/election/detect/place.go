package detect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// dialFunc is that of an http.Transport.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// place is where the leader's process has answered. Its name may have other addresses, for example those of another
// family, or of a record that is old. That one of these refuses connections says nothing of the process: a crash is a
// refusal where this very process has answered.
type place struct {
	mu       sync.Mutex
	dialled  net.Addr // of the latest connection
	answered string   // the host that has answered; empty: none yet
}

// confirm notes that the process has answered on the latest connection.
func (p *place) confirm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dialled == nil {
		return
	}
	if host, _, err := net.SplitHostPort(p.dialled.String()); err == nil {
		p.answered = host
	}
}

func (p *place) host() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answered
}

// errElsewhere is the error of a refusal by an address that has never answered.
var errElsewhere = errors.New("another address of the leader's name refuses connections")

// through returns a function that dials where the process has answered, if it has. If that cannot be reached, it tries
// all addresses of the name: the process may be reached by another. It does not take their refusal for the process's.
func (p *place) through(dialer *net.Dialer, patience time.Duration) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, fmt.Errorf("the address of the leader's probe is not valid: %w", err)
		}
		answered := p.host()
		if answered != "" && answered != host {
			first, cancel := context.WithTimeout(ctx, patience/2) // packets to it may be lost
			conn, err := dialer.DialContext(first, network, net.JoinHostPort(answered, port))
			cancel()
			if err == nil || errors.Is(err, syscall.ECONNREFUSED) || ctx.Err() != nil {
				return p.note(conn, err)
			}
		}
		conn, err := dialer.DialContext(ctx, network, address)
		if answered != "" && answered != host && errors.Is(err, syscall.ECONNREFUSED) {
			return nil, fmt.Errorf("%w: %v", errElsewhere, err) //nolint:errorlint // a refusal must not be found in it
		}
		return p.note(conn, err)
	}
}

func (p *place) note(conn net.Conn, err error) (net.Conn, error) {
	if err == nil {
		p.mu.Lock()
		p.dialled = conn.RemoteAddr()
		p.mu.Unlock()
	}
	return conn, err
}
