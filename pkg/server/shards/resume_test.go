package shards

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// processes answers for one of several processes of a shard.
type processes struct {
	open    OpenWatches
	answers string // the process that answers
	listed  string // the resource version that the last list asked for
}

func (p *processes) ask(ctx context.Context, query string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://shard/"+query, nil)
	if err != nil {
		return err
	}
	return p.open.track(req, &http.Response{
		StatusCode: http.StatusOK, Body: http.NoBody,
		TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Raw: []byte("of " + strings.Clone(p.answers))}}},
	})
}

func (p *processes) listWatch() cache.ListerWatcherWithContext {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			p.listed = opts.ResourceVersion
			return nil, p.ask(ctx, "")
		},
		WatchFuncWithContext: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
			return nil, p.ask(ctx, "?watch=1")
		},
	}
}

// A process that was started since may serve another history: that of a backup.
func TestAWatchGoesOnOnlyWhereItsInformerHasListed(t *testing.T) {
	p := &processes{answers: "a"}
	lw, another := InOneHistory(p.listWatch()), InOneHistory(p.listWatch())
	list := func(of cache.ListerWatcherWithContext) {
		t.Helper()
		if _, err := of.ListWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "7"}); err != nil {
			t.Fatal(err)
		}
	}
	goesOn := func() bool {
		t.Helper()
		before, _ := p.open.Count()
		_, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "7"})
		after, _ := p.open.Count()
		if err != nil && (!apierrors.IsResourceExpired(err) || after != before) || err == nil && after != before+1 {
			t.Fatalf("%v, %d open watches became %d", err, before, after)
		}
		return err == nil
	}
	list(lw)
	for range 2 {
		if !goesOn() {
			t.Error("refused by the process that was listed")
		}
	}
	p.answers = "b"
	list(another)
	if goesOn() {
		t.Error("at a process of which only another informer has a list")
	}
	list(lw)
	if !goesOn() {
		t.Error("refused though it was listed")
	}
	if p.answers = "a"; goesOn() {
		t.Error("at a process that was listed in an earlier history")
	}
}

// A shard waits for a revision that it has not reached, and one that was restored may not reach it for long. Which
// of its replicas answers is not known before.
func TestAListWaitsForNoRevisionOfAnotherHistory(t *testing.T) {
	p := &processes{answers: "a"}
	lw := InOneHistory(p.listWatch())
	for asked, want := range map[string]string{"0": "0", "7": "", "": ""} {
		opts := metav1.ListOptions{ResourceVersion: asked, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
		if _, err := lw.ListWithContext(t.Context(), opts); err != nil || p.listed != want {
			t.Errorf("asked to list at revision %q it lists at %q (%v)", asked, p.listed, err)
		}
	}
}
