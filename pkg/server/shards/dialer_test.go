package shards

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/regent-project/regent/pkg/server/pki"
)

// front returns how a front calls shard eu1.
func (i *installation) front(fingerprint string) *tls.Config {
	i.Helper()
	with, err := newCall(i.bundle.CAPEM, i.authority(pki.Member{Kind: pki.KindFront, Name: "f"}))
	if err != nil {
		i.Fatal(err)
	}
	return with.config("eu1", fingerprint)
}

// through returns a client that connects to replicas of eu1 for each request.
func (i *installation) through(d *Dialer) *http.Client {
	transport := d.Transport()
	transport.DisableKeepAlives = true
	i.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func ask(client *http.Client) (string, error) {
	resp, err := client.Get("https://anywhere.internal/")
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// strangers are replicas that are not the wanted ones, each with what is said of it.
func (i *installation) strangers() map[string]struct {
	*replica
	says string
} {
	i.Helper()
	byInstallation, byKey, err := i.bundle.ServingCert([]string{pki.ServerName}, nil)
	if err != nil {
		i.Fatal(err)
	}
	here := answering(http.StatusOK, "a stranger")
	return map[string]struct {
		*replica
		says string
	}{
		"is down":                           {i.down(), "connection refused"},
		"is paused":                         {i.paused(), "deadline exceeded"},
		"is another shard's":                {i.serve(i.authority(shardNamed("us1")), here), "shard us1 answers: correct it with regent shard set eu1"},
		"is a front":                        {i.serve(i.authority(pki.Member{Kind: pki.KindFront, Name: "f"}), here), "front f answers"},
		"is no member":                      {i.serveWith(byInstallation, byKey, here), "not signed by the authority of a shard or front"},
		"is another installation's":         {i.serve(newInstallation(i.T).authority(shardNamed("eu1")), here), "unknown authority"},
		"has a membership that is replaced": {i.serve(i.newAuthority(shardNamed("eu1")), here), "a membership that was replaced"},
	}
}

// A replica that is dead or not what it should be costs its second once: the one that has accepted is tried first.
func TestOneReplicaThatAcceptsIsEnough(t *testing.T) {
	i := newInstallation(t)
	eu1 := i.authority(shardNamed("eu1"))
	for name, stranger := range i.strangers() {
		t.Run("one "+name, func(t *testing.T) {
			good := i.serve(eu1, answering(http.StatusOK, "eu1"))
			dialer, err := NewDialer("eu1", []string{stranger.url, good.url}, i.front(eu1.Fingerprint()))
			if err != nil {
				t.Fatal(err)
			}
			client := i.through(dialer)
			for range 3 {
				if got, err := ask(client); got != "eu1" {
					t.Errorf("%q answers (%v)", got, err)
				}
			}
			if got := stranger.connections.Load(); got > 1 {
				t.Errorf("it was dialed %d times", got)
			}
		})
	}
}

func TestAFailedDialNamesEveryReplicaAndSaysThatNothingWasSent(t *testing.T) {
	i := newInstallation(t)
	var urls, says []string
	for _, stranger := range i.strangers() {
		urls, says = append(urls, stranger.url), append(says, strings.TrimPrefix(stranger.url, "https://")+": ", stranger.says)
	}
	dialer, err := NewDialer("eu1", urls, i.front(i.authority(shardNamed("eu1")).Fingerprint()))
	if err != nil {
		t.Fatal(err)
	}
	_, err = ask(i.through(dialer))
	if open := (*net.OpError)(nil); !errors.As(err, &open) || open.Op != "dial" {
		t.Errorf("%v is no failure to dial", err)
	}
	for _, want := range says {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

func TestFaultyURLsAreRefusedWithWhatToDo(t *testing.T) {
	i := newInstallation(t)
	for _, faulty := range [][]string{nil, {"https://127.0.0.1:6443", "http://plain"}, {"%"}, {"https://:6443"}} {
		if _, err := NewDialer("eu1", faulty, i.front("")); err == nil || !strings.Contains(err.Error(), "regent shard set eu1") {
			t.Errorf("%q is accepted: %v", faulty, err)
		}
	}
}

// Whoever gives up does not make a replica one that has failed.
func TestADialThatIsGivenUpChangesNoOrder(t *testing.T) {
	i := newInstallation(t)
	dialer, err := NewDialer("eu1", []string{i.paused().url, i.down().url}, i.front(""))
	if err != nil {
		t.Fatal(err)
	}
	before := dialer.replicas.list()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := dialer.dial(ctx, "tcp", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("the dial ends with %v", err)
	}
	if got := dialer.replicas.list(); got[0] != before[0] || got[1] != before[1] {
		t.Errorf("order %v, was %v", got, before)
	}
}
