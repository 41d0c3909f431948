package keys

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

	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/pkg/server/reload"
)

// newWatch returns a watch of a new directory, which an etcd agrees to unless it returns an error.
func newWatch(t *testing.T, follow func() error) (*follower, string) {
	t.Helper()
	directory := filepath.Join(t.TempDir(), "pki")
	c, err := Open(directory, "root", false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ServeAs([]string{"localhost"}, nil); err != nil {
		t.Fatal(err)
	}
	return newFollower(c, FollowConfig{Agree: func(context.Context, *pki.Bundle) error { return follow() }}, time.Now()), directory
}

// runWatch runs a watch, in a bubble, while do runs.
func runWatch(t *testing.T, w *follower, do func()) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		joined := make(chan struct{})
		go func() {
			defer close(joined)
			reload.Each(ctx, interval, w.look)
		}()
		synctest.Wait()
		do()
		cancel()
		<-joined
	})
}

// pass lets time pass in the bubble, and the look at its end be over: what the test does next must not come into the
// middle of it.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func certificatesCheck(c *Keys) (int, string) {
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
		pass(4 * interval)
		if now, _ := w.serving.CurrentCertKeyContent(); string(now) != string(before) {
			t.Error("the new authority's certificate is shown")
		}
		if status, body := certificatesCheck(w.Keys); status != http.StatusInternalServerError || !strings.Contains(body, "etcd is away") {
			t.Errorf("the check answers %d %s", status, body)
		}
		answers.Store(true)
		pass(4 * interval)
		now, _ := w.serving.CurrentCertKeyContent()
		ca, authority := w.ForMembers()
		bundle := w.inUse.Load().bundle
		if string(now) == string(before) || bundle.Phase() != pki.PhaseSwitched || string(ca) != string(bundle.CAPEM) || authority == nil {
			t.Error("the new authority is not in use")
		}
		if status, body := certificatesCheck(w.Keys); status != http.StatusOK {
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
			pass(3 * interval)
			if status, body := certificatesCheck(w.Keys); status != c.status {
				t.Errorf("%.20q: the check answers %d %s, want %d", c.content, status, body, c.status)
			}
		}
		if now, _ := w.serving.CurrentCertKeyContent(); string(now) != string(before) {
			t.Error("another certificate is shown")
		}
	})
}

// It may take minutes until the files are followed: an etcd may be away until then.
func TestFilesThatChangeBeforeTheyAreFollowedAreUsed(t *testing.T) {
	w, directory := newWatch(t, func() error { return nil })
	if err := pki.Roll(directory, "", pki.Begin); err != nil {
		t.Fatal(err)
	}
	w = newFollower(w.Keys, w.FollowConfig, time.Now())
	runWatch(t, w, func() {
		pass(3 * interval)
		if got := w.inUse.Load().bundle.Phase(); got != pki.PhaseBegun {
			t.Errorf("in use is phase %s", got)
		}
	})
}

// A process that lives longer than what it has signed for itself signs again in time.
func TestAProcessThatLivesLongRenewsWhatItHasSigned(t *testing.T) {
	w, _ := newWatch(t, func() error { return nil })
	before, _ := w.serving.CurrentCertKeyContent()
	began := time.Now()
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
