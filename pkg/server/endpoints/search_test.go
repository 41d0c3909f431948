package endpoints

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
	"github.com/regent-project/regent/pkg/server/identity"
	"github.com/regent-project/regent/pkg/server/status"
)

func workspaceAt(path string) *tenancyv1alpha1.Workspace {
	parent, name, _ := cutLast(path)
	return &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{logicalcluster.AnnotationKey: parent}},
		Spec:       tenancyv1alpha1.WorkspaceSpec{URL: "https://a:1/clusters/" + path, Cluster: "c-" + name},
		Status:     tenancyv1alpha1.WorkspaceStatus{Phase: corev1alpha1.LogicalClusterPhaseReady},
	}
}

func cutLast(path string) (parent, name string, ok bool) {
	at := strings.LastIndex(path, ":")
	return path[:max(at, 0)], path[at+1:], at >= 0
}

// searchOf is that of a shard that has the workspaces of these paths.
func searchOf(t testing.TB, paths ...string) *search {
	var all []*tenancyv1alpha1.Workspace
	for _, path := range paths {
		all = append(all, workspaceAt(path))
	}
	return &search{shard: "root", workspaces: controllertest.Informer(t, controllertest.NewSource(all...), nil)}
}

func pathsOf(found status.Workspaces) (paths []string) {
	for _, ws := range found.Items {
		paths = append(paths, ws.Path)
	}
	return paths
}

func TestWorkspacesAreFoundByAPartOfTheirPath(t *testing.T) {
	s := searchOf(t, "root:team:b", "root:team:a", "root:team", "root:other", "root:b:team-x")
	for _, c := range []struct {
		query string
		want  []string
		more  bool
	}{
		{"search=root:team", []string{"root:team", "root:team:a", "root:team:b"}, false},
		{"search=team", []string{"root:b:team-x", "root:team", "root:team:a", "root:team:b"}, false},
		{"search=TEAM", nil, false},
		{"search=root:team:a&limit=1", []string{"root:team:a"}, false},
		{"search=other&limit=500", []string{"root:other"}, false},
	} {
		query, _ := url.ParseQuery(c.query)
		found, err := s.find(t.Context(), query, false)
		if got := pathsOf(found); err != nil || !slices.Equal(got, c.want) || found.More != c.more || found.Items == nil {
			t.Errorf("%s: %q, more: %v, %v; want %q, %v", c.query, got, found.More, err, c.want, c.more)
		}
	}
	found, err := s.find(t.Context(), url.Values{"search": {"root:team:b"}}, false)
	if want := (status.Workspace{Path: "root:team:b", Cluster: "c-b", Phase: "Ready", Shard: "root", Home: "root"}); err != nil || len(found.Items) != 1 || found.Items[0] != want {
		t.Errorf("found %+v, %v; want %+v", found.Items, err, want)
	}
}

func TestNoMoreWorkspacesAreFoundThanAskedFor(t *testing.T) {
	var paths []string
	for n := range 2*searchPage + 1 { // more than one page of the informer
		paths = append(paths, fmt.Sprintf("root:w%04d", n))
	}
	s := searchOf(t, paths...)
	for query, want := range map[string]int{"search=root": defaultFound, "search=root&limit=1": 1, "search=root&limit=500": mostFound} {
		values, _ := url.ParseQuery(query)
		if found, err := s.find(t.Context(), values, false); err != nil || len(found.Items) != want || !found.More {
			t.Errorf("%s: %d, more: %v, %v; want %d and more", query, len(found.Items), found.More, err, want)
		}
	}
	last := url.Values{"search": {fmt.Sprintf("w%04d", 2*searchPage)}}
	if found, err := s.find(t.Context(), last, false); err != nil || len(found.Items) != 1 || found.More {
		t.Errorf("the last one: %+v, %v", found, err)
	}
	all := url.Values{"search": {"root:w000"}, "limit": {"10"}} // w0000 to w0009
	if found, err := s.find(t.Context(), all, false); err != nil || len(found.Items) != 10 || found.More {
		t.Errorf("as many as there are: %+v, %v", found, err)
	}
}

func TestABadSearchIsRefused(t *testing.T) {
	s := searchOf(t, "root:a")
	s.others = func() []string { return []string{"eu1"} }
	s.ask = func(context.Context, string, string, time.Duration, int64) ([]byte, error) {
		t.Error("another shard was asked")
		return nil, nil
	}
	for _, query := range []string{
		"", "search=", "limit=5", "search=a&limit=0", "search=a&limit=-1", "search=a&limit=501", "search=a&limit=x", "search=a&limit=1e2", "search=" + strings.Repeat("a", 513),
	} {
		values, _ := url.ParseQuery(query)
		if found, err := s.find(t.Context(), values, false); !apierrors.IsBadRequest(err) {
			t.Errorf("%.40q: %+v, %v; want 400", query, found, err)
		}
	}
}

func TestWhatOtherShardsHaveIsFound(t *testing.T) {
	s := searchOf(t, "root:b", "root:d")
	s.others = func() []string { return []string{"eu1", "eu2", "eu3"} }
	var mu sync.Mutex
	asked := map[string]string{}
	answers := map[string]string{
		// who answers does not say for whom
		"eu1": `{"items":[{"path":"root:a","cluster":"1","phase":"Ready","shard":"root"}]}`,
		"eu2": `{"items":[{"path":"root:c","cluster":"2","phase":"Ready"}],"more":true}`,
		"eu3": `{"items":[]}`,
	}
	s.ask = func(_ context.Context, shard, path string, each time.Duration, limit int64) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		asked[shard] = path
		if each != searchPatience || limit != searchLimit {
			t.Errorf("%s may take %v and answer %d bytes", shard, each, limit)
		}
		return []byte(answers[shard]), nil
	}
	find := func(query string) status.Workspaces {
		values, _ := url.ParseQuery(query)
		found, err := s.find(t.Context(), values, false)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	found := find("search=root:&limit=7")
	var got []string
	for _, ws := range found.Items {
		got = append(got, ws.Path+" on "+ws.Shard)
	}
	if want := []string{"root:a on eu1", "root:b on root", "root:c on eu2", "root:d on root"}; !slices.Equal(got, want) || !found.More || found.Faults != nil {
		t.Errorf("found %q, more: %v, faults %v; want %q", got, found.More, found.Faults, want)
	}
	if want := status.WorkspacesPath + "?limit=7&search=root%3A"; asked["eu1"] != want || len(asked) != 3 {
		t.Errorf("asked %q, want %s", asked, want)
	}
	if found := find("search=root:&limit=3"); !slices.Equal(pathsOf(found), []string{"root:a", "root:b", "root:c"}) || !found.More {
		t.Errorf("three: %+v", found)
	}
}

func TestAShardThatFailsIsToldAndCostsTheOthersNothing(t *testing.T) {
	s := searchOf(t, "root:b")
	s.others = func() []string { return []string{"down", "odd", "well"} }
	s.ask = func(_ context.Context, shard, _ string, _ time.Duration, _ int64) ([]byte, error) {
		return map[string][]byte{"odd": []byte("<html>"), "well": []byte(`{"items":[{"path":"root:a"}]}`)}[shard],
			map[string]error{"down": errors.New("it does not run")}[shard]
	}
	found, err := s.find(t.Context(), url.Values{"search": {"root"}}, false)
	if err != nil || !slices.Equal(pathsOf(found), []string{"root:a", "root:b"}) || !found.More {
		t.Errorf("found %+v, %v", found, err)
	}
	if len(found.Faults) != 2 || found.Faults["down"] != "it does not run" || !strings.Contains(found.Faults["odd"], "invalid character") {
		t.Errorf("faults %q", found.Faults)
	}
}

// What a shard that is down has said last is not what is so now.
func TestWorkspacesOfAShardThatIsDownSaySo(t *testing.T) {
	var all []*tenancyv1alpha1.Workspace
	for name, home := range map[string]string{"a": "", "b": "eu1", "c": "down"} {
		ws := workspaceAt("root:" + name)
		ws.Labels = map[string]string{clusters.ShardLabel: home}
		all = append(all, ws)
	}
	s := &search{shard: "root", workspaces: controllertest.Informer(t, controllertest.NewSource(all...), nil), answers: func(shard string) bool { return shard != "down" }}
	s.others = func() []string { return []string{"eu1"} }
	s.ask = func(context.Context, string, string, time.Duration, int64) ([]byte, error) {
		// as eu1 hears it
		return []byte(`{"items":[{"path":"root:d","phase":"Ready","home":"down","unreachable":true}]}`), nil
	}
	found, err := s.find(t.Context(), url.Values{"search": {"root"}}, false)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, ws := range found.Items {
		got = append(got, fmt.Sprintf("%s %s on %s, unreachable: %t", ws.Path, ws.Phase, ws.Home, ws.Unreachable))
	}
	want := []string{
		"root:a Ready on root, unreachable: false",
		"root:b Ready on eu1, unreachable: false",
		"root:c Ready on down, unreachable: true",
		"root:d Ready on down, unreachable: true",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAMemberIsToldOfThisShardOnly(t *testing.T) {
	s := searchOf(t, "root:b")
	asked := 0
	s.others = func() []string { return []string{"eu1"} }
	s.ask = func(context.Context, string, string, time.Duration, int64) ([]byte, error) {
		asked++
		return []byte(`{"items":[]}`), nil
	}
	for n, who := range []user.Info{&identity.MemberUser{}, &user.DefaultInfo{Name: "ann"}} {
		req := httptest.NewRequest("GET", status.WorkspacesPath+"?search=b", nil)
		found, err := s.describe(req.WithContext(apirequest.WithUser(t.Context(), who)))
		if err != nil || !slices.Equal(pathsOf(found.(status.Workspaces)), []string{"root:b"}) {
			t.Errorf("%T: %+v, %v", who, found, err)
		}
		if asked != n {
			t.Errorf("%T: %d others were asked, want %d", who, asked, n)
		}
	}
}

func TestASearchEndsWithItsRequest(t *testing.T) {
	s := searchOf(t, "root:b")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if found, err := s.find(ctx, url.Values{"search": {"b"}}, true); err != nil || len(found.Items) != 0 {
		t.Errorf("found %+v, %v", found, err)
	}
}

// BenchmarkSearch looks for one among 100,000 workspaces, the last one, and for one that is not there.
func BenchmarkSearch(b *testing.B) {
	var paths []string
	for n := range 100_000 {
		paths = append(paths, fmt.Sprintf("root:org-%d:w%d", n%100, n))
	}
	s := searchOf(b, paths...)
	for name, text := range map[string]string{"one": "w99999", "none": "nowhere", "all": "root"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.find(b.Context(), url.Values{"search": {text}}, true); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
