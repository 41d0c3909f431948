package bundles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/cmd/server/workspaces"
	"github.com/regent-project/regent/pkg/server/bundle"
)

// freezing is a server that freezes and writes, and remembers the order.
type freezing struct {
	mu      sync.Mutex
	frozen  bool
	begun   int
	pages   [][]string // of keys; those that are deleted with a minus
	refuse  int        // answers with this code to the next PUT that has lines
	expired bool       // the freeze has ended
	plain   map[string]string
}

func (s *freezing) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fail := func(code int) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"refused","reason":"Expired","code":%d}`, code)
	}
	switch {
	case !strings.HasSuffix(req.URL.Path, bundle.FreezePath):
		fail(http.StatusNotFound)
		return
	case req.Method == http.MethodPost:
		s.frozen = true
		s.begun++
	case !s.frozen || s.expired || req.URL.Query().Get("freeze") != fmt.Sprint(s.begun):
		fail(http.StatusGone)
		return
	case req.Method == http.MethodDelete:
		s.frozen = false
	default:
		body, _ := io.ReadAll(req.Body)
		if len(body) > 0 && s.refuse > 0 {
			fail(s.refuse)
			s.refuse = 0
			return
		}
		var page []string
		for line := range strings.Lines(string(body)) {
			var o bundle.Object
			if err := json.Unmarshal([]byte(line), &o); err != nil {
				fail(http.StatusBadRequest)
				return
			}
			if o.Deleted {
				page = append(page, "-"+o.Key)
				continue
			}
			page = append(page, o.Key)
			s.plain[o.Key] = string(o.Object)
		}
		if len(page) > 0 {
			slices.Sort(page)
			s.pages = append(s.pages, page)
		}
	}
	_ = json.NewEncoder(w).Encode(bundle.Frozen{Freeze: fmt.Sprint(s.begun), Revision: 7, Seconds: 10})
}

func clientOf(server *httptest.Server) *workspaces.Client {
	config := &rest.Config{Host: server.URL}
	return workspaces.NewClient(config, workspaces.Place{Base: server.URL})
}

// restoreExactly restores root:team on a shard.
func restoreExactly(t *testing.T, s *freezing, then, now map[string]string, o RestoreOptions) (*Restored, error) {
	t.Helper()
	s.plain = map[string]string{}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return RestoreExactly(t.Context(), clientOf(server), bundleWith(t, then), func(_ context.Context, revision int64) (*bundle.Bundle, error) {
		if o.Plan != (revision == 0) || !o.Plan && !s.frozen {
			t.Errorf("it is exported at revision %d, frozen: %v", revision, s.frozen)
		}
		return bundleWith(t, now), nil
	}, logicalcluster.NewPath("root:team"), o)
}

// An exact restore writes what differs in any field, owners before what they own, and deletes what is new. It leaves
// alone what is no data of the workspace.
func TestAnExactRestoreWritesWhatDiffersAndOwnersFirst(t *testing.T) {
	lease := func(holder string) string {
		return fmt.Sprintf(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"l"},"spec":{"holderIdentity":%q}}`, holder)
	}
	for name, c := range map[string]struct {
		then, now map[string]string
		options   RestoreOptions
		want      Restored
		pages     [][]string
	}{
		"nothing has changed": {
			then: map[string]string{inApp + "a": configMap("a", "1", "x")}, now: map[string]string{inApp + "a": configMap("a", "1", "x")},
			want: Restored{Same: 1},
		},
		"another uid, another field, gone, new": {
			then:  map[string]string{inApp + "a": configMap("a", "1", "x"), inApp + "b": configMap("b", "2", "x"), inApp + "c": configMap("c", "3", "x")},
			now:   map[string]string{inApp + "a": configMap("a", "11", "x"), inApp + "b": configMap("b", "2", "x", `"labels":{"l":""}`), inApp + "n": configMap("n", "4", "x")},
			want:  Restored{Report: Report{Created: 1, Updated: 2, Deleted: 1}, Create: []string{inApp + "c"}, Update: []string{inApp + "a", inApp + "b"}, Delete: []string{inApp + "n"}},
			pages: [][]string{{inApp + "a", inApp + "b", inApp + "c"}, {"-" + inApp + "n"}},
		},
		"it is being deleted": {
			then:  map[string]string{inApp + "a": configMap("a", "1", "x")},
			now:   map[string]string{inApp + "a": configMap("a", "1", "x", `"deletionTimestamp":"2026-01-01T00:00:00Z"`)},
			want:  Restored{Report: Report{Updated: 1}, Update: []string{inApp + "a"}},
			pages: [][]string{{inApp + "a"}},
		},
		"owners, theirs, and who was there all the time": {
			then: map[string]string{
				inApp + "a": configMap("a", "1", "x", ownedBy("2")), inApp + "b": configMap("b", "2", "x", ownedBy("3")), inApp + "c": configMap("c", "3", "x"),
				inApp + "d": configMap("d", "4", "x", ownedBy("3")), inApp + "e": configMap("e", "5", "x", ownedBy("9")),
			},
			now: map[string]string{inApp + "d": configMap("d", "4", "x", ownedBy("3")), inApp + "e": configMap("e", "5", "x", ownedBy("9"))},
			want: Restored{
				Report: Report{Created: 3}, Same: 2, Create: []string{inApp + "a", inApp + "b", inApp + "c"},
			},
			pages: [][]string{{inApp + "c"}, {inApp + "b", inApp + "d"}, {inApp + "a"}},
		},
		"leases, workspaces, events and what the server writes": {
			then: map[string]string{
				"coordination.k8s.io/leases/app/l": lease("old"), bundle.WorkspaceKeys + "w": workspace, "core/events/app/e": configMap("e", "1", "x"),
				bundle.LogicalClusterKey: `{"kind":"LogicalCluster","apiVersion":"core.kcp.io/v1alpha1"}`,
			},
			now: map[string]string{
				"coordination.k8s.io/leases/app/l": lease("new"), bundle.WorkspaceKeys + "v": workspace, "core/events/app/f": configMap("f", "1", "x"),
				bundle.LogicalClusterKey: `{"kind":"LogicalCluster","apiVersion":"core.kcp.io/v1alpha1","spec":{}}`,
			},
			want: Restored{Report: Report{Left: []Leftover{
				{"leases.coordination.k8s.io", 1, "they stay as they are: they say who leads now, and no term comes back"},
				{"events", 1, "they stay as they are: they tell what has happened"},
				{"workspaces.tenancy.kcp.io", 1, "they stay as they are: what is in them is not in this workspace: restore each by itself, or import a bundle of one that is gone"},
			}}},
		},
		"what every workspace has and somebody has deleted since is there again": {
			then: map[string]string{}, now: map[string]string{inApp + "since": "deleted"},
			want:  Restored{Report: Report{Deleted: 1}, Delete: []string{inApp + "since"}},
			pages: [][]string{{"-" + inApp + "since"}},
		},
		"only one": {
			then: map[string]string{inApp + "a": configMap("a", "1", "x"), inApp + "b": configMap("b", "2", "x"), "core/secrets/app/s": "sealed"},
			now:  map[string]string{inApp + "n": configMap("n", "3", "x")}, options: RestoreOptions{Only: []string{inApp + "a"}},
			want:  Restored{Report: Report{Created: 1}, Create: []string{inApp + "a"}},
			pages: [][]string{{inApp + "a"}},
		},
		"a plan": {
			then: map[string]string{inApp + "a": configMap("a", "1", "x")}, now: map[string]string{}, options: RestoreOptions{Plan: true},
			want: Restored{Create: []string{inApp + "a"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &freezing{}
			got, err := restoreExactly(t, s, c.then, c.now, c.options)
			if err != nil {
				t.Fatal(err)
			}
			slices.SortFunc(got.Left, func(a, b Leftover) int { return strings.Compare(a.Resource, b.Resource) })
			slices.SortFunc(c.want.Left, func(a, b Leftover) int { return strings.Compare(a.Resource, b.Resource) })
			if !reflect.DeepEqual(*got, c.want) {
				t.Errorf("%+v\nwant %+v", *got, c.want)
			}
			if !reflect.DeepEqual(s.pages, c.pages) {
				t.Errorf("written: %v, want %v", s.pages, c.pages)
			}
			if s.frozen || c.options.Plan != (s.begun == 0) {
				t.Errorf("frozen %d times, and still: %v", s.begun, s.frozen)
			}
			for key, text := range s.plain {
				if text != c.then[key] {
					t.Errorf("%s is written as %s, and was %s", key, text, c.then[key])
				}
			}
		})
	}
}

// Owners that own each other are written all the same, and end no run.
func TestOwnersThatOwnEachOtherAreWritten(t *testing.T) {
	then := map[string]string{inApp + "a": configMap("a", "1", "x", ownedBy("2")), inApp + "b": configMap("b", "2", "x", ownedBy("1")), inApp + "c": configMap("c", "3", "x", ownedBy("3"))}
	got, err := restoreExactly(t, &freezing{}, then, nil, RestoreOptions{})
	if err != nil || got.Created != 3 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestAnExactRestoreGoesOnOrSaysThatItIsNotWhole(t *testing.T) {
	then := map[string]string{inApp + "a": configMap("a", "1", "x")}
	if got, err := restoreExactly(t, &freezing{refuse: http.StatusServiceUnavailable}, then, nil, RestoreOptions{}); err != nil || got.Created != 1 {
		t.Errorf("a replica that is away for a moment: %+v, %v", got, err)
	}
	s := &freezing{refuse: http.StatusBadRequest}
	if got, err := restoreExactly(t, s, then, nil, RestoreOptions{}); err == nil || got.Created != 0 || s.frozen {
		t.Errorf("refused: %+v, %v, and frozen: %v", got, err, s.frozen)
	}
	if _, err := restoreExactly(t, &freezing{expired: true}, then, nil, RestoreOptions{}); err == nil {
		t.Error("what is frozen no longer is written")
	}
	s = &freezing{expired: true}
	if _, err := restoreExactly(t, s, nil, nil, RestoreOptions{}); !errors.Is(err, errThawed) {
		t.Errorf("it was not frozen until the end: %v", err)
	}
}

// A freeze is renewed for as long as it is needed, and what it is for ends with it.
func TestAFreezeIsRenewedWhileItIsNeeded(t *testing.T) {
	s := &freezing{plain: map[string]string{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	client, err := discovery.NewDiscoveryClientForConfig(clientOf(server).At(logicalcluster.NewPath("root:team")))
	if err != nil {
		t.Fatal(err)
	}
	err = whileFrozen(t.Context(), &frozen{client: client.RESTClient(), path: bundle.FreezePath}, func(ctx context.Context, _ *frozen) error {
		s.mu.Lock()
		s.expired = true
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Minute):
			return errors.New("it goes on without a freeze")
		}
	})
	if !errors.Is(err, errThawed) {
		t.Error(err)
	}
}
