package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
)

// knowledge is what a client knows of all logical clusters: for each object its labels.
type knowledge map[string]string

func (s knowledge) apply(kind string, obj *metav1.PartialObjectMetadata) {
	key := clusters.KeyOf(obj).String()
	if kind == "DELETED" {
		delete(s, key)
		return
	}
	labels, _ := json.Marshal(obj.Labels)
	s[key] = string(labels)
}

type eventOf struct {
	Type   string
	Object *metav1.PartialObjectMetadata
}

// watchAll returns the events of all logical clusters from a revision on, until the function is called.
func (s *builtInShard) watchAll(t *testing.T, path, version string) (collect func(enough func([]eventOf) bool) []eventOf) {
	t.Helper()
	lines, stop := s.lines(t, "/clusters/*"+path+"?watch=true&allowWatchBookmarks=true&resourceVersion="+url.QueryEscape(version))
	return func(enough func([]eventOf) bool) (all []eventOf) {
		defer stop()
		late := time.After(20 * time.Second)
		for !enough(all) {
			select {
			case line, ok := <-lines:
				var event eventOf
				if err := json.Unmarshal([]byte(line), &event); !ok || err != nil {
					t.Errorf("a watch of all logical clusters ended after %d events, with %q", len(all), line)
					return all
				}
				all = append(all, event)
			case <-late:
				t.Errorf("%d events came, and not the last one", len(all))
				return all
			}
		}
		return all
	}
}

func (s *builtInShard) listAll(t *testing.T, path, query string) (*metav1.PartialObjectMetadataList, knowledge) {
	t.Helper()
	all := knowledge{}
	for next := ""; ; {
		got := s.ask(t, http.MethodGet, "/clusters/*"+path+"?"+query+"&continue="+url.QueryEscape(next), "t-root")
		out := &metav1.PartialObjectMetadataList{}
		if err := json.Unmarshal([]byte(got.body), out); err != nil || got.status != http.StatusOK {
			t.Fatalf("GET %s: %d %s", path, got.status, got.body)
		}
		for i := range out.Items {
			key := clusters.KeyOf(&out.Items[i]).String()
			if _, twice := all[key]; twice {
				t.Errorf("?%s lists %s twice", query, key)
			}
			all.apply("ADDED", &out.Items[i])
		}
		if out.Continue == "" {
			return out, all
		}
		next = out.Continue
	}
}

// Logical clusters come and go, and what is built into them is changed and deleted meanwhile. A client that watches all
// of them ends up with what a list shows, wherever it was cut off and went on.
func TestAWatchOfAllClustersGoesOnFromAnyEventWithoutALoss(t *testing.T) {
	s := startBuiltIn(t, false)
	for path, more := range map[string]string{
		"/api/v1/namespaces":      "/api/v1/namespaces/default",
		"/api/v1/serviceaccounts": "/api/v1/namespaces/kube-system/serviceaccounts/default",
		"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/workspace-admin",
	} {
		t.Run(path, func(t *testing.T) {
			list, begin := s.listAll(t, path, "")
			collect := s.watchAll(t, path, list.ResourceVersion)
			var makers sync.WaitGroup
			prefix := "all" + fmt.Sprint(len(path))
			for maker := range 4 {
				makers.Go(func() {
					for n := range 8 {
						cluster := fmt.Sprintf("%s-%d-%d", prefix, maker, n)
						s.cluster(t, cluster)
						if n%2 == 0 {
							s.write(t, http.MethodPatch, "/clusters/"+cluster+more, "t-root", merged, fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, n))
						}
						if n%3 == 0 {
							s.write(t, http.MethodDelete, "/clusters/"+cluster+more, "t-root", merged, "")
						}
						if n%4 == 1 {
							gone := s.write(t, http.MethodDelete, "/clusters/"+cluster+"/apis/core.kcp.io/v1alpha1/logicalclusters/cluster", s.server.identity.InProcess.Leader, merged, "")
							if gone.status != http.StatusOK {
								t.Errorf("%d %s", gone.status, gone.body)
							}
						}
					}
				})
			}
			makers.Wait()
			last := prefix + "-last"
			s.cluster(t, last)
			isLast := func(all []eventOf) bool {
				return len(all) > 0 && slices.ContainsFunc(all[max(0, len(all)-3):], func(e eventOf) bool { return clusters.KeyOf(e.Object).Cluster.String() == last })
			}
			complete := func(all []eventOf) bool { return isLast(all) && all[len(all)-1].Type == "BOOKMARK" }
			events := collect(complete)
			_, end := s.listAll(t, path, "")
			if path != "/api/v1/namespaces" {
				// The list of each logical cluster has more that is built in, which never changes.
				maps.DeleteFunc(end, func(key, _ string) bool { _, was := begin[key]; return was })
			}
			got := maps.Clone(begin)
			var states []knowledge
			for _, event := range events {
				if event.Type != "BOOKMARK" {
					got.apply(event.Type, event.Object)
				}
				states = append(states, maps.Clone(got))
			}
			maps.DeleteFunc(got, func(key, _ string) bool { _, is := end[key]; _, was := begin[key]; return was && !is })
			if diff := cmp.Diff(end, got); diff != "" {
				t.Fatalf("after %d events, a client knows something else than a list shows:\n%s", len(events), diff)
			}
			if len(events) < 50 {
				t.Errorf("%d events came: this shows little", len(events))
			}
			for n := 0; n < len(events)-1; n += 7 {
				again := maps.Clone(states[n])
				for _, event := range s.watchAll(t, path, events[n].Object.ResourceVersion)(complete) {
					if event.Type != "BOOKMARK" {
						again.apply(event.Type, event.Object)
					}
				}
				maps.DeleteFunc(again, func(key, _ string) bool { _, is := end[key]; _, was := begin[key]; return was && !is })
				if diff := cmp.Diff(end, again); diff != "" {
					t.Errorf("a client that goes on after event %d, from %s, knows something else than a list shows:\n%s", n, events[n].Object.ResourceVersion, diff)
				}
			}
			for _, limit := range []int{1, 2, 5, 50, 500} {
				if _, paged := s.listAll(t, path, fmt.Sprintf("limit=%d", limit)); len(paged) < len(end) {
					t.Errorf("pages of %d have %d objects, and the whole list has %d", limit, len(paged), len(end))
				} else {
					maps.DeleteFunc(paged, func(key, _ string) bool { _, is := end[key]; return !is })
					if diff := cmp.Diff(end, paged); diff != "" {
						t.Errorf("pages of %d differ from the whole list:\n%s", limit, diff)
					}
				}
			}
			_, labelled := s.listAll(t, path, "labelSelector=n")
			want := maps.Clone(end)
			maps.DeleteFunc(want, func(_, labels string) bool {
				var of map[string]string
				_ = json.Unmarshal([]byte(labels), &of)
				return of["n"] == ""
			})
			maps.DeleteFunc(labelled, func(key, _ string) bool { _, is := want[key]; return !is && len(begin[key]) > 0 })
			if diff := cmp.Diff(want, labelled); diff != "" || len(want) == 0 {
				t.Errorf("a selector over all logical clusters selects something else:\n%s", diff)
			}
		})
	}
}

// Whoever deletes an account or a binding takes rights away, also if it was only built in. They do not come back with
// another object of its name, nor with another start.
func TestRightsThatWereBuiltInAndAreDeletedNeverComeBack(t *testing.T) {
	s := startBuiltIn(t, false)
	s.cluster(t, "of-rights")
	const account = "/api/v1/namespaces/default/serviceaccounts/default"
	token := func() string {
		got := s.post(t, "of-rights", account+"/token", "t-root", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`)
		var made struct{ Status struct{ Token string } }
		if err := json.Unmarshal([]byte(got.body), &made); err != nil || made.Status.Token == "" {
			t.Fatalf("no token: %d %s", got.status, got.body)
		}
		return made.Status.Token
	}
	who := func(token string) int {
		return s.post(t, "of-rights", "/apis/authentication.k8s.io/v1/selfsubjectreviews", token, `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`).status
	}
	old := token()
	if code := who(old); code != http.StatusCreated {
		t.Fatalf("the token of a built-in account is answered with %d", code)
	}
	s.write(t, http.MethodPatch, "/clusters/of-rights"+account, "t-root", merged, `{"metadata":{"labels":{"a":"b"}}}`)
	if code := who(old); code != http.StatusCreated {
		t.Errorf("after a change of the account its token is answered with %d", code)
	}
	s.write(t, http.MethodDelete, "/clusters/of-rights"+account, "t-root", merged, "")
	until(t, "the token of the deleted account is refused", func() bool { return who(old) == http.StatusUnauthorized })
	if got := s.post(t, "of-rights", "/api/v1/namespaces/default/serviceaccounts", "t-root", `{"metadata":{"name":"default"}}`); got.status != http.StatusCreated {
		t.Fatalf("%d %s", got.status, got.body)
	}
	until(t, "the token of the new account works", func() bool { return who(token()) == http.StatusCreated })
	if code := who(old); code != http.StatusUnauthorized {
		t.Errorf("the token of the account that was deleted is answered with %d", code)
	}

	may := func() bool {
		return s.ask(t, http.MethodGet, "/clusters/of-rights/api/v1/namespaces", "t-ann").status == http.StatusOK
	}
	if !may() {
		t.Fatal("the creator has no rights")
	}
	s.write(t, http.MethodDelete, "/clusters/of-rights/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/workspace-admin", "t-ann", merged, "")
	until(t, "the creator may do nothing any more", func() bool { return !may() })
	if err := s.stop(t); err != nil {
		t.Fatal(err)
	}
	cfg := config(t, s.root)
	cfg.TokenFile, cfg.EmbeddedEtcd, cfg.Etcd = s.server.cfg.TokenFile, nil, s.server.cfg.Etcd
	again := &builtInShard{replica: startReplica(t, cfg)}
	t.Cleanup(func() {
		if err := again.stop(t); err != nil {
			t.Error(err)
		}
	})
	for again.get(t, "/readyz") != http.StatusOK {
		if got := again.ask(t, http.MethodGet, "/clusters/of-rights/api/v1/namespaces", "t-ann"); got.status == http.StatusOK {
			t.Fatal("while a replica starts, the creator has rights that were taken away")
		}
	}
	if got := again.ask(t, http.MethodGet, "/clusters/of-rights/api/v1/namespaces", "t-ann"); got.status != http.StatusForbidden {
		t.Errorf("the creator, whose binding was deleted, is answered with %d after another start", got.status)
	}
}
