package bench

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/regent-project/regent/test/e2e/harness"
)

func isReady(ws *unstructured.Unstructured) bool {
	phase, _, _ := unstructured.NestedString(ws.Object, "status", "phase")
	return phase == "Ready"
}

// watching follows the workspaces in root from now on.
type watching struct {
	watch.Interface
	end func()
}

func watchWorkspaces(b *testing.B, through *harness.Replica) *watching {
	b.Helper()
	client := through.Dynamic("root").Resource(harness.Workspaces)
	list, err := client.List(b.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		b.Fatal(err)
	}
	w, err := client.Watch(b.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		b.Fatal(err)
	}
	return &watching{w, w.Stop}
}

// until returns when the watch showed a workspace as wanted.
func (w *watching) until(b *testing.B, name string, so func(*unstructured.Unstructured) bool) time.Time {
	b.Helper()
	timeout := time.After(5 * time.Minute)
	for {
		select {
		case event, ok := <-w.ResultChan():
			ws, is := event.Object.(*unstructured.Unstructured)
			if !ok || !is {
				b.Fatalf("the watch of workspaces has ended: %v", event.Object)
			}
			if ws.GetName() == name && so(ws) {
				return time.Now()
			}
		case <-timeout:
			b.Fatalf("workspace %s is not as it should be after 5 minutes", name)
		}
	}
}

// asking is somebody who reads and somebody who writes, through one replica.
type asking struct {
	end     func()
	mu      sync.Mutex
	answers []reply
}

type reply struct {
	at     time.Time
	took   time.Duration
	failed bool
}

// ask begins to read the workspaces and to write ConfigMaps.
func ask(b *testing.B, through *harness.Replica, workspaces int) *asking {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	a := &asking{}
	var users sync.WaitGroup
	a.end = sync.OnceFunc(func() {
		cancel()
		users.Wait()
	})
	reader, writer := through.Dynamic("root").Resource(harness.Workspaces), through.Kube("root").CoreV1().ConfigMaps("default")
	for _, user := range []struct {
		pause time.Duration
		ask   func() error
	}{
		{5 * time.Millisecond, func() error {
			_, err := reader.Get(ctx, workspaceName(rand.N(workspaces)), metav1.GetOptions{})
			if workspaces == 1 {
				err = nil // there is none
			}
			return err
		}},
		{20 * time.Millisecond, func() error {
			_, err := writer.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "asked-"}}, metav1.CreateOptions{})
			return err
		}},
	} {
		users.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				err := user.ask()
				if ctx.Err() != nil {
					return
				}
				a.mu.Lock()
				a.answers = append(a.answers, reply{began, time.Since(began), err != nil})
				a.mu.Unlock()
				time.Sleep(user.pause)
			}
		})
	}
	return a
}

// replies are those of some time.
type replies struct {
	took   []time.Duration
	failed int
}

func (a *asking) within(from, to time.Time) (in replies) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.answers {
		if one.at.Before(from) || one.at.After(to) {
			continue
		}
		in.took = append(in.took, one.took)
		if one.failed {
			in.failed++
		}
	}
	return in
}

func (a replies) n() int { return len(a.took) }

func (a replies) p99() time.Duration {
	if len(a.took) == 0 {
		return 0
	}
	return percentile(a.took, 99)
}

func (a replies) and(b replies) replies {
	return replies{took: append(append([]time.Duration{}, a.took...), b.took...), failed: a.failed + b.failed}
}
