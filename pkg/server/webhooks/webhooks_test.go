package webhooks

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

func TestNoMoreCallsThanTheLimitAndEachInItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := NewCalls(3 * time.Second)
		began := time.Now()
		var first context.Context
		var ends []func()
		for range Limit {
			ctx, end, err := calls.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = ctx
			}
			ends = append(ends, end)
		}
		if _, _, err := calls.Begin(t.Context()); !errors.Is(err, errTooMany) {
			t.Errorf("one more call: %v", err)
		}
		<-first.Done()
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("a call ended after %v", took)
		}
		ends[0]()
		_, end, err := calls.Begin(t.Context())
		if err != nil {
			t.Errorf("after a call has ended: %v", err)
		}
		ends[0] = end
		for _, end := range ends {
			end()
		}
		calls.Close()
	})
}

func TestCloseEndsCallsAndWaitsForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := NewCalls(time.Hour)
		ctx, end, err := calls.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		over := false
		go func() {
			<-ctx.Done()
			<-time.After(time.Second)
			over = true
			end()
		}()
		calls.Close()
		if !over {
			t.Error("Close returned before the call had ended")
		}
		if _, _, err := calls.Begin(t.Context()); err == nil {
			t.Error("a call has begun after Close")
		}
	})
}

func TestAClientNeedsNoGoroutineForItsFiles(t *testing.T) {
	name := filepath.Join(t.TempDir(), "kubeconfig")
	write := func(user string) {
		content := `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], ` +
			`clusters: [{name: a, cluster: {server: "https://127.0.0.1:1/review"}}], users: [{name: a, user: ` + user + `}]}`
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{token: t0ken}`)
	client, closeIdle, err := Client(name, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	closeIdle()
	if client.Host != "https://127.0.0.1:1/review" || client.Timeout != time.Second || client.QPS >= 0 {
		t.Errorf("client %v", client)
	}
	write(`{exec: {command: make-credentials, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}}`)
	if _, _, err := Client(name, time.Second); err == nil || !strings.Contains(err.Error(), "programs") {
		t.Errorf("a program that makes credentials: %v", err)
	}
	write(`{client-certificate: nowhere.crt, client-key: nowhere.key}`)
	if _, _, err := Client(name, time.Second); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("a certificate that is not there: %v", err)
	}
}
