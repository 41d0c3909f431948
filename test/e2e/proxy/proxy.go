// Package proxy is a TCP proxy on loopback whose network can be made to fail: stalled, or cut.
package proxy

import (
	"fmt"
	"net"
	"sync"
)

// Proxy forwards connections. All methods may be called at any time, by anybody.
type Proxy struct {
	listener net.Listener
	target   func(from, to net.Addr) (string, error)
	serving  sync.WaitGroup

	mu     sync.Mutex
	change *sync.Cond // of stalled, cut, closed
	// stalled, by direction: connections stay open, and nothing passes. cut: none is open, and new ones are closed
	// at once.
	stalled     [2]bool
	cut, closed bool
	open        map[net.Conn]struct{}
}

// The directions of traffic.
const (
	requests = iota // to the target
	answers         // from it
)

// Start returns a proxy to target, as in 127.0.0.1:2379, on a port that the kernel chooses.
func Start(target string) (*Proxy, error) { return StartAt("127.0.0.1:0", target) }

// StartAt is Start with a listener of the caller's choice.
func StartAt(address, target string) (*Proxy, error) {
	p, err := start(address, func(_, _ net.Addr) (string, error) { return target, nil })
	if err != nil {
		return nil, fmt.Errorf("proxy to %s: %w", target, err)
	}
	return p, nil
}

// Route is Start with a target that depends on who has opened the connection, and to where. One without a target is
// closed.
func Route(target func(from, to net.Addr) (string, error)) (*Proxy, error) {
	return start("127.0.0.1:0", target)
}

func start(address string, target func(from, to net.Addr) (string, error)) (*Proxy, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, target: target, open: map[net.Conn]struct{}{}}
	p.change = sync.NewCond(&p.mu)
	p.serving.Go(p.accept)
	return p, nil
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Stall lets nothing pass any more. Peers notice nothing but silence. If several ways to etcd are stalled one after the
// other, the last may still answer for a moment: replicas avoid the others then.
func (p *Proxy) Stall() { p.set(func() { p.stalled = [2]bool{true, true} }) }

// StallRequests is Stall for what goes to the target, StallAnswers for what comes from it. New connections stall too.
func (p *Proxy) StallRequests() { p.set(func() { p.stalled[requests] = true }) }

// StallAnswers stalls the other direction.
func (p *Proxy) StallAnswers() { p.set(func() { p.stalled[answers] = true }) }

// Cut closes all connections, and new ones as they come.
func (p *Proxy) Cut() {
	p.set(func() {
		p.cut = true
		p.closeAll()
	})
}

// Resume ends Stall and Cut. What was on its way when the proxy stalled arrives now.
func (p *Proxy) Resume() { p.set(func() { p.stalled, p.cut = [2]bool{}, false }) }

// Close closes everything and returns when all has ended.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.set(func() {
		p.closed = true
		p.closeAll()
	})
	p.serving.Wait()
}

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.change.Broadcast()
}

func (p *Proxy) closeAll() {
	for c := range p.open {
		_ = c.Close()
	}
}

// enter keeps a connection among the open ones, if there may be any.
func (p *Proxy) enter(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut || p.closed {
		_ = c.Close()
		return false
	}
	p.open[c] = struct{}{}
	return true
}

func (p *Proxy) leave(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

// pass returns when traffic in that direction may pass, false if never again.
func (p *Proxy) pass(direction int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.stalled[direction] && !p.cut && !p.closed {
		p.change.Wait()
	}
	return !p.cut && !p.closed
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.serving.Go(func() { p.serve(c) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	if !p.enter(client) {
		return
	}
	defer p.leave(client)
	if !p.pass(requests) || !p.pass(answers) {
		return
	}
	target, err := p.target(client.RemoteAddr(), client.LocalAddr())
	if err != nil {
		return
	}
	server, err := net.Dial("tcp", target)
	if err != nil || !p.enter(server) {
		return
	}
	defer p.leave(server)
	var both sync.WaitGroup
	both.Go(func() { p.copy(server, client, requests) })
	both.Go(func() { p.copy(client, server, answers) })
	both.Wait()
}

// copy ends both connections with either direction: no peer here half-closes.
func (p *Proxy) copy(to, from net.Conn, direction int) {
	defer func() {
		_ = to.Close()
		_ = from.Close()
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if !p.pass(direction) {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
