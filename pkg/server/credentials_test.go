package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/test/etcdtest"
)

// The record in etcd follows the authority through a roll, whatever replica comes first, and nobody else's files change it.
func TestTheShardsRecordFollowsTheAuthorityThroughARoll(t *testing.T) {
	client := etcdClient(t, etcdtest.Start(t))
	root := t.TempDir()
	directory := filepath.Join(root, pkiDirectory)
	cfg := Config{Shard: "root", EtcdPrefix: "/registry", RootDirectory: root}
	old, err := pki.Ensure(directory)
	if err != nil {
		t.Fatal(err)
	}
	check := func(b *pki.Bundle) error {
		t.Helper()
		return newShardCheck(client, cfg, b, identity.NewEncryptCheckTransformer()).Run(t.Context())
	}
	roll := func(s pki.Step) *pki.Bundle {
		t.Helper()
		if err := pki.Roll(directory, "", s); err != nil {
			t.Fatal(err)
		}
		b, err := pki.Read(directory)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if err := check(old); err != nil {
		t.Fatal(err)
	}
	begun := roll(pki.Begin)
	switched := roll(pki.Switch)
	finished := roll(pki.Finish)
	stranger, err := pki.Ensure(filepath.Join(t.TempDir(), pkiDirectory))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		with    *pki.Bundle
		refused bool
	}{
		{"another shard's files, before", stranger, true},
		{"a replica that knows of the roll", begun, false},
		{"one that does not", old, false},
		{"the first one that signs with the new authority", switched, false},
		{"one that is behind", begun, false},
		{"one that has missed the roll", old, true},
		{"another shard's files, after", stranger, true},
		{"one that is ahead", finished, false},
		{"one that is behind by a step", switched, false},
	} {
		if err := check(c.with); errors.Is(err, errOtherShard) != c.refused || err != nil && !c.refused {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := client.Delete(t.Context(), shardKey("/registry")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(check(old), check(finished)); err != nil {
		t.Errorf("an etcd that was restored to before the roll: %v", err)
	}
}

// newWatch returns a watch of a new directory, which an etcd agrees to unless it returns an error.
func newWatch(t *testing.T, follow func() error) (*credentialsWatch, string) {
	t.Helper()
	root := t.TempDir()
	c, err := newCredentials(Config{Shard: "root", RootDirectory: root})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.serveAs([]string{"localhost"}, nil); err != nil {
		t.Fatal(err)
	}
	return &credentialsWatch{credentials: c, follow: func(context.Context, *pki.Bundle) error { return follow() }}, filepath.Join(root, pkiDirectory)
}

// runWatch runs a watch, in a bubble, while do runs.
func runWatch(t *testing.T, w *credentialsWatch, do func()) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		joined := make(chan struct{})
		go func() {
			defer close(joined)
			w.run(ctx)
		}()
		synctest.Wait()
		do()
		cancel()
		<-joined
	})
}

// pass lets time pass in the bubble, and the look at its end be over: what the test does next must not come into the middle of it.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func certificatesCheck(c *credentials) (int, string) {
	answer := httptest.NewRecorder()
	c.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz/certificates", nil))
	return answer.Code, answer.Body.String()
}

// Nothing of a new authority is shown before the record in etcd agrees, and all of it is afterwards.
func TestNothingIsSignedAnewBeforeTheRecordAgrees(t *testing.T) {
	var answers atomic.Bool
	w, directory := newWatch(t, func() error {
		if !answers.Load() {
			return errors.New("etcd is away")
		}
		return nil
	})
	before, _ := w.serving.CurrentCertKeyContent()
	runWatch(t, w, func() {
		for _, s := range []pki.Step{pki.Begin, pki.Switch} {
			if err := pki.Roll(directory, "", s); err != nil {
				t.Fatal(err)
			}
		}
		pass(4 * credentialsInterval)
		if now, _ := w.serving.CurrentCertKeyContent(); string(now) != string(before) {
			t.Error("the new authority's certificate is shown")
		}
		if status, body := certificatesCheck(w.credentials); status != http.StatusInternalServerError || !strings.Contains(body, "etcd is away") {
			t.Errorf("the check answers %d %s", status, body)
		}
		answers.Store(true)
		pass(4 * credentialsInterval)
		now, _ := w.serving.CurrentCertKeyContent()
		ca, authority := w.keys()
		bundle := w.held.Load().bundle
		if string(now) == string(before) || bundle.Phase() != pki.PhaseSwitched || string(ca) != string(bundle.CAPEM) || authority == nil {
			t.Error("the new authority is not in use")
		}
		if status, body := certificatesCheck(w.credentials); status != http.StatusOK {
			t.Errorf("the check answers %d %s", status, body)
		}
	})
}

// Files that are faulty, or are being copied, change nothing, and are told of until they are mended.
func TestFaultyKeysChangeNothing(t *testing.T) {
	w, directory := newWatch(t, func() error { return nil })
	before, _ := w.serving.CurrentCertKeyContent()
	name := filepath.Join(directory, pki.CACertFile)
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	runWatch(t, w, func() {
		for _, c := range []struct {
			content []byte
			status  int
		}{{[]byte("nonsense"), http.StatusInternalServerError}, {good, http.StatusOK}} {
			if err := os.WriteFile(name, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			pass(3 * credentialsInterval)
			if status, body := certificatesCheck(w.credentials); status != c.status {
				t.Errorf("%.20q: the check answers %d %s, want %d", c.content, status, body, c.status)
			}
		}
		if now, _ := w.serving.CurrentCertKeyContent(); string(now) != string(before) {
			t.Error("another certificate is shown")
		}
	})
}

// A process that lives longer than what it has signed for itself signs again in time.
func TestAProcessThatLivesLongRenewsWhatItHasSigned(t *testing.T) {
	w, _ := newWatch(t, func() error { return nil })
	before, _ := w.serving.CurrentCertKeyContent()
	began := time.Now()
	w.inUse, w.signed = w.state(), began
	for after, same := range map[time.Duration]bool{signAgain - time.Second: true, signAgain + time.Second: false} {
		w.signed = began
		w.look(t.Context(), began.Add(after))
		now, _ := w.serving.CurrentCertKeyContent()
		if (string(now) == string(before)) != same {
			t.Errorf("after %v the certificate is the first one: %t", after, !same)
		}
		before = now
	}
}
