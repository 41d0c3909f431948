package authentication

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// reviewer is a webhook that knows tokens.
type reviewer struct {
	asked  atomic.Int64
	good   atomic.Bool
	hangs  atomic.Bool
	file   string
	review authenticationv1.UserInfo
}

func startReviewer(t *testing.T, who authenticationv1.UserInfo) *reviewer {
	t.Helper()
	r := &reviewer{review: who}
	r.good.Store(true)
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.file = writeFile(t, filepath.Join(t.TempDir(), "webhook.kubeconfig"), fmt.Sprintf(
		`{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: {server: %q}}]}`, server.URL+"/review"))
	return r
}

func (r *reviewer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.asked.Add(1)
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil || review.APIVersion != "authentication.k8s.io/v1" || req.URL.Path != "/review" {
		http.Error(w, "no TokenReview", http.StatusBadRequest)
		return
	}
	if r.hangs.Load() {
		<-req.Context().Done()
		return
	}
	if review.Spec.Token == "t0ken" && r.good.Load() {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: r.review}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

func TestAWebhookSaysWhoseATokenIsAndItsAnswersAreRemembered(t *testing.T) {
	hook := startReviewer(t, authenticationv1.UserInfo{Username: "ann", Groups: []string{"dev"}})
	long, _ := start(t, Config{Webhook: Webhook{File: hook.file, Version: "v1", TTL: time.Hour}}, "")
	for range 3 {
		long.mustBe(t, "t0ken", "ann")
		if _, _, err := long.who("wrong"); err == nil {
			t.Error("a token that the webhook does not know is let in")
		}
	}
	if n := hook.asked.Load(); n != 2 {
		t.Errorf("asked %d times about two tokens", n)
	}
	const ttl = 300 * time.Millisecond
	a, _ := start(t, Config{Webhook: Webhook{File: hook.file, Version: "v1", TTL: ttl}}, "")
	a.mustBe(t, "t0ken", "ann")
	hook.good.Store(false)
	took := within(t, 20*time.Second, "the token's end", func() bool { _, _, err := a.who("t0ken"); return err != nil })
	t.Logf("with a TTL of %v a token that was withdrawn is refused after %v", ttl, took)
}

func TestAWebhookNamesNoneOfTheServersOwnUsers(t *testing.T) {
	hook := startReviewer(t, authenticationv1.UserInfo{Username: "system:serviceaccount:a:b"})
	a, _ := start(t, Config{Webhook: Webhook{File: hook.file, Version: "v1"}}, "")
	if who, _, err := a.who("t0ken"); err == nil {
		t.Errorf("let in as %s", who)
	}
}

func TestAWebhookThatHangsDoesNotOutliveTheServer(t *testing.T) {
	hook := startReviewer(t, authenticationv1.UserInfo{Username: "ann"})
	hook.hangs.Store(true)
	a, stop := start(t, Config{Webhook: Webhook{File: hook.file, Version: "v1", TTL: time.Minute}}, "")
	answered := make(chan error, 1)
	go func() {
		_, _, err := a.who("t0ken")
		answered <- err
	}()
	within(t, 5*time.Second, "the question", func() bool { return hook.asked.Load() > 0 })
	began := time.Now()
	stop()
	if took := time.Since(began); took > callTimeout/2 {
		t.Errorf("the call ended %v after it was asked to", took)
	}
	if err := <-answered; err == nil {
		t.Error("let in by a webhook that has not answered")
	}
	if _, _, err := a.who("another"); err == nil || hook.asked.Load() != 1 {
		t.Errorf("asked again after the end: %v", err)
	}
}

func TestAWebhookThatCannotBeUsedIsAnErrorOfTheStart(t *testing.T) {
	for _, content := range []string{"nonsense", `{apiVersion: v1, kind: Config}`} {
		file := writeFile(t, filepath.Join(t.TempDir(), "k"), content)
		if _, err := New(Config{Webhook: Webhook{File: file, Version: "v1"}}); err == nil {
			t.Errorf("%s: no error", content)
		}
	}
	hook := startReviewer(t, authenticationv1.UserInfo{Username: "ann"})
	if _, err := New(Config{Webhook: Webhook{File: hook.file, Version: "v2"}}); err == nil || !strings.Contains(err.Error(), "--authentication-token-webhook-version") {
		t.Errorf("a version that there is not: %v", err)
	}
}
