package bundles

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/cmd/server/workspaces"
	"github.com/regent-project/regent/pkg/server/bundle"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// shard answers with pages of three objects.
type shard struct {
	*testing.T
	mu      sync.Mutex
	objects []bundle.Object
	// faults are what becomes of the answers, one after the other.
	faults []func(w http.ResponseWriter, page []byte)
	header bundle.Header
	asked  []string
}

func startShard(t *testing.T, objects int) (*shard, *workspaces.Client) {
	t.Helper()
	s := &shard{T: t, header: bundle.Header{Version: bundle.Version, Cluster: "2xk", Path: "root:team", Shard: "root", Revision: 7}}
	s.objects = []bundle.Object{{Key: bundle.LogicalClusterKey, Revision: 1, Object: json.RawMessage(`{"kind":"LogicalCluster"}`)}}
	for n := range objects - 1 {
		s.objects = append(s.objects, bundle.Object{Key: fmt.Sprintf("core/configmaps/default/n%02d", n), Revision: 1, Object: json.RawMessage(`{"kind":"ConfigMap"}`)})
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return s, workspaces.NewClient(&rest.Config{Transport: transport}, workspaces.Place{Base: server.URL})
}

// ServeHTTP implements http.Handler.
func (s *shard) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, req.URL.RequestURI())
	query := req.URL.Query()
	if after := query.Get("after"); after != "" && query.Get("revision") != strconv.FormatInt(s.header.Revision, 10) {
		s.Errorf("the page behind %s is asked for at revision %q", after, query.Get("revision"))
	}
	var page bytes.Buffer
	lines := json.NewEncoder(&page)
	encode := func(l bundle.Line) {
		if err := lines.Encode(l); err != nil {
			s.Error(err)
		}
	}
	encode(bundle.Line{Header: &s.header})
	n := 0
	for i := range s.objects {
		if s.objects[i].Key > query.Get("after") && n < 3 {
			encode(bundle.Line{Object: &s.objects[i]})
			n++
		}
	}
	encode(bundle.Line{Page: &bundle.Page{More: n == 3}})
	if len(s.faults) > 0 {
		fault := s.faults[0]
		if s.faults = s.faults[1:]; fault != nil {
			fault(w, page.Bytes())
			return
		}
	}
	_, _ = w.Write(page.Bytes())
}

func refuse(code int, reason string) func(http.ResponseWriter, []byte) {
	return func(w http.ResponseWriter, _ []byte) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"by the test","reason":%q,"code":%d}`, reason, code)
	}
}

// cutOff answers with the first bytes of a page.
func cutOff(w http.ResponseWriter, page []byte) { _, _ = w.Write(page[:len(page)-20]) }

// hangUp ends the connection.
func hangUp(http.ResponseWriter, []byte) { panic(http.ErrAbortHandler) }

func TestAnExportGoesOnWhereTheLastReplicaStopped(t *testing.T) {
	s, client := startShard(t, 10)
	s.faults = []func(http.ResponseWriter, []byte){
		refuse(http.StatusServiceUnavailable, "ServiceUnavailable"), nil, cutOff, hangUp, nil, refuse(http.StatusInternalServerError, "InternalError"), nil, cutOff,
	}
	var file bytes.Buffer
	all, err := Export(t.Context(), client, logicalcluster.NewPath("root:team"), &file, ExportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.faults) > 0 {
		t.Errorf("%d faults did not happen", len(s.faults))
	}
	found, err := bundle.Open(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := found[0].Each(func(o bundle.Object) error {
		if o.Key != s.objects[n].Key {
			t.Errorf("%s, want %s", o.Key, s.objects[n].Key)
		}
		n++
		return nil
	}); err != nil || n != 10 || all[0].Objects != 10 || all[0].Revision != 7 {
		t.Errorf("%d objects, %+v, %v", n, all[0], err)
	}
}

func TestAnExportThatCannotGoOnEnds(t *testing.T) {
	for name, c := range map[string]struct {
		second func(*shard) func(http.ResponseWriter, []byte)
		says   string
	}{
		"etcd has the revision no more": {func(*shard) func(http.ResponseWriter, []byte) { return refuse(http.StatusGone, "Expired") }, "by the test"},
		"the user lost the right":       {func(*shard) func(http.ResponseWriter, []byte) { return refuse(http.StatusForbidden, "Forbidden") }, "by the test"},
		"another cluster has the path": {func(s *shard) func(http.ResponseWriter, []byte) {
			return func(w http.ResponseWriter, page []byte) {
				_, _ = w.Write(bytes.Replace(page, []byte(s.header.Cluster), []byte("3ab"), 1))
			}
		}, "another logical cluster"},
	} {
		s, client := startShard(t, 10)
		s.faults = []func(http.ResponseWriter, []byte){nil, c.second(s)}
		if _, err := Export(t.Context(), client, logicalcluster.NewPath("root:team"), io.Discard, ExportOptions{}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAWorkspaceThatWasNotThereIsNoBundle(t *testing.T) {
	s, client := startShard(t, 10)
	s.objects = nil
	if _, err := Export(t.Context(), client, logicalcluster.NewPath("root:team"), io.Discard, ExportOptions{Ago: time.Minute}); err == nil || !strings.Contains(err.Error(), "not there") {
		t.Errorf("%v", err)
	}
	if len(s.asked) != 1 || !strings.Contains(s.asked[0], "ago=1m") {
		t.Errorf("it was asked for %q", s.asked)
	}
}

func TestWhatHasNoKeyIsNamedAndKeepsNothingElseOut(t *testing.T) {
	s, client := startShard(t, 3)
	s.objects = append(s.objects, bundle.Object{Key: "core/configmaps/default/one/more", Revision: 1, Object: json.RawMessage(`{}`)}, bundle.Object{Key: "core/configmaps/z/z", Unreadable: "by the test"})
	var file bytes.Buffer
	all, err := Export(t.Context(), client, logicalcluster.NewPath("root:team"), &file, ExportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"core/configmaps/default/one/more", "core/configmaps/z/z"}; !slices.Equal(all[0].Unreadable, want) || all[0].Objects != 4 {
		t.Errorf("%+v, want unreadable %q and 4 objects", all[0], want)
	}
	if _, err := bundle.Open(bytes.NewReader(file.Bytes()), int64(file.Len())); err != nil {
		t.Error(err)
	}
}

func TestLabelsOfAWorkspaceThatAreNotItsUsersStay(t *testing.T) {
	there := map[string]string{"tenancy.kcp.io/shard": "eu1", "regent.dev/x": "now", "team": "now", "new": "now"}
	users := map[string]string{"tenancy.kcp.io/shard": "us1", "regent.dev/x": "then", "team": "then", "kcp.io.example.com/a": "then"}
	want := map[string]string{"tenancy.kcp.io/shard": "eu1", "regent.dev/x": "now", "team": "then", "new": "now", "kcp.io.example.com/a": "then"}
	if got := merged(there, users); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestAFileIsThereOnceItIsWholeAndReplacesNone(t *testing.T) {
	name := filepath.Join(t.TempDir(), "team.bundle")
	broken := errors.New("broken, by the test")
	write := func(err error) func(io.Writer) error {
		return func(to io.Writer) error {
			if _, err := os.Stat(name); err == nil {
				t.Error("it is there before it is whole")
			}
			_, _ = io.WriteString(to, "whole")
			return err
		}
	}
	if err := WriteFile(name, write(broken)); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(name)); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if err := WriteFile(name, write(nil)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := WriteFile(name, write(nil)); err == nil || !strings.Contains(err.Error(), "there already") {
		t.Errorf("%v", err)
	}
	if content, err := os.ReadFile(name); err != nil || string(content) != "whole" { //nolint:gosec // the test's own
		t.Errorf("%s, %v", content, err)
	}
}
