// Package etcdcheck is what a replica checks of the shard's etcd: that it answers, that it has space left, and that its
// prefix is this shard's. The probes' secret is read with the latter.
package etcdcheck

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/status"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/klog/v2"
)

const (
	// checkTimeout is how long a check waits for etcd.
	checkTimeout = 2 * time.Second
	// reasonTimeout is how long observe waits to learn why etcd did not answer.
	reasonTimeout = time.Second
	// checkPeriod is the pause between two calls of observe. reminder is the least time between two log lines about
	// an outage.
	checkPeriod = 2 * time.Second
	reminder    = time.Minute
)

// Answers checks that etcd answers a linearizable read.
type Answers struct {
	client *clientv3.Client
	key    string
	// answers is the result of the last observe, and true before the first. fault is its error; nil if etcd
	// answered.
	answers atomic.Bool
	fault   atomic.Pointer[error]
}

// NewAnswers returns a check that reads a key below a prefix.
func NewAnswers(client *clientv3.Client, prefix string) *Answers {
	c := &Answers{client: client, key: prefix + "/.health"}
	c.answers.Store(true)
	return c
}

// Name implements healthz.HealthChecker.
func (c *Answers) Name() string { return "etcd" }

// Check implements healthz.HealthChecker. It belongs in /readyz only: killing replicas does not bring etcd back.
func (c *Answers) Check(req *http.Request) error { return c.ask(req.Context()) }

// observe asks etcd and records whether it answered. The error says why it did not, if that can be found out.
func (c *Answers) observe(ctx context.Context) error {
	err := c.ask(ctx)
	c.answers.Store(err == nil)
	if err == nil {
		c.fault.Store(nil)
		return nil
	}
	if reason := c.reason(ctx); reason != "" {
		err = fmt.Errorf("%w: %s", err, reason)
	}
	c.fault.Store(&err)
	return err
}

// DidAnswer reports whether etcd answered when Run last asked, and true before that.
func (c *Answers) DidAnswer() bool { return c.answers.Load() }

// Latest returns why etcd did not answer when Run last asked, and asks nobody.
func (c *Answers) Latest() error {
	if fault := c.fault.Load(); fault != nil {
		return *fault
	}
	return nil
}

// reason returns what gRPC says of the connection: refused, or which certificate is not trusted. etcd's own client
// hides this: it repeats a read until its context ends, and returns the context's error. So reason makes one read of
// its own.
func (c *Answers) reason(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, reasonTimeout)
	defer cancel()
	_, err := pb.NewKVClient(c.client.ActiveConnection()).Range(ctx, &pb.RangeRequest{Key: []byte(c.key), KeysOnly: true})
	message := status.Convert(err).Message() // "" for nil
	switch {
	case message == context.DeadlineExceeded.Error():
		return ""
	case strings.Contains(message, "broken pipe"), strings.Contains(message, "connection reset"), strings.Contains(message, "EOF"):
		// The server may close the connection before the client has read why.
		return message + " (a server that wants TLS, or another client certificate, closes connections like that)"
	}
	return message
}

func (c *Answers) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if _, err := c.client.Get(ctx, c.key, clientv3.WithKeysOnly()); err != nil {
		return fmt.Errorf("etcd does not answer: %w", err)
	}
	return nil
}

// Run asks etcd again and again until ctx ends. It logs when etcd stops answering, then every minute, and when it
// answers again.
func (c *Answers) Run(ctx context.Context) { tellOfEtcd(ctx, c.observe) }

// tellOfEtcd calls ask again and again until ctx ends. It logs when etcd stops answering, then every minute, and when
// it answers again. Callers of etcd try again by themselves and need not log.
func tellOfEtcd(ctx context.Context, ask func(context.Context) error) {
	log := klog.FromContext(ctx)
	var since, told time.Time
	for {
		err := ask(ctx)
		now := time.Now()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && !since.IsZero():
			log.Info("etcd answers again", "after", now.Sub(since).Round(time.Second))
			since, told = time.Time{}, time.Time{}
		case err != nil:
			if since.IsZero() {
				since = now
			}
			if told.IsZero() || now.Sub(told) >= reminder {
				log.Error(err, "This replica is not ready and its requests fail or wait until etcd answers: look after etcd and the way to it", "for", now.Sub(since).Round(time.Second))
				told = now
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(checkPeriod):
		}
	}
}

var _ healthz.HealthChecker = (*Answers)(nil)
