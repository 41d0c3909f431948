package server

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/apis"
	"github.com/regent-project/regent/pkg/server/loopback"
)

// A replica that is ready, or leads, with a cold cache would decide by what it has not seen.
func TestAReplicaIsReadyWhenEveryInformerHasReadAllObjects(t *testing.T) {
	newInformers := overAnEmptyShard(t)
	for cold := range newInformers().All() {
		t.Run(cold, func(t *testing.T) {
			informers := newInformers()
			var g goroutines
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(func() {
				cancel()
				g.Join()
			})
			all := informers.All()
			for name, informer := range all {
				if name != cold {
					g.Go(name, func() error { return informer.Run(ctx) })
				}
			}
			for name, informer := range all {
				if name != cold {
					untilSynced(t, name, informer)
				}
			}
			if err := informersCheck(informers).Check(nil); err == nil || !strings.Contains(err.Error(), "the informer of "+cold+" ") {
				t.Errorf("ready without it: %v", err)
			}
			if waits := synced(informers)[cold]; waits != all[cold].Synced() {
				t.Error("an election would not wait for it")
			}
		})
	}
}

func TestAllInformersRun(t *testing.T) {
	informers := overAnEmptyShard(t)()
	var l lifetime
	l.ctx, l.end = context.WithCancelCause(t.Context())
	t.Cleanup(func() {
		l.end(nil)
		l.Join()
	})
	runInformers(&l, informers)
	for name, informer := range informers.All() {
		untilSynced(t, name, informer)
	}
	if err := informersCheck(informers).Check(nil); err != nil {
		t.Errorf("not ready: %v", err)
	}
}

func untilSynced(t *testing.T, name string, informer controllers.Informer) {
	t.Helper()
	select {
	case <-informer.Synced():
	case <-time.After(time.Minute):
		t.Fatalf("the informer of %s reads nothing", name)
	}
}

// overAnEmptyShard returns what makes the informers of a replica, over a shard in which there is nothing.
func overAnEmptyShard(t *testing.T) func() controllers.Informers {
	t.Helper()
	pem, _, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := loopback.New(&rest.Config{Host: "https://127.0.0.1", TLSClientConfig: rest.TLSClientConfig{CAData: pem}}, "")
	if err != nil {
		t.Fatal(err)
	}
	client.Wrap(func(http.RoundTripper) http.RoundTripper { return empty{} })
	clients, err := client.Clients()
	if err != nil {
		t.Fatal(err)
	}
	var resources []controllers.Resource
	for _, r := range apis.Resources() {
		resources = append(resources, controllers.Resource(r))
	}
	return func() controllers.Informers { return controllers.NewInformers(clients, resources) }
}

// empty answers lists of any resource with an empty one, and lets watches wait.
type empty struct{}

func (empty) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Query().Get("watch") == "true" {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	list := map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": map[string]any{"resourceVersion": "1"}}
	if !strings.Contains(req.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		for _, r := range apis.Resources() {
			if strings.HasSuffix(req.URL.Path, "/"+r.GVR.GroupVersion().String()+"/"+r.GVR.Resource) {
				list["apiVersion"], list["kind"] = r.GVR.GroupVersion().String(), r.Kind+"List"
			}
		}
	}
	body, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusOK, Request: req, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(body))),
	}, nil
}
