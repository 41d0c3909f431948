package server

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/bundle"
	"github.com/regent-project/regent/test/etcdtest"
)

// takesIn makes a request about a workspace that comes, in its parent. query has names and values by turns.
func (s *society) takesIn(verb, who, parent, body string, query ...string) (out bundle.Frozen, err error) {
	s.Helper()
	req := s.as(who, parent).Discovery().RESTClient().Verb(verb).AbsPath(bundle.ComingPath)
	for pair := range slices.Chunk(query, 2) {
		req = req.Param(pair[0], pair[1])
	}
	if body != "" {
		req = req.Body([]byte(body))
	}
	result := req.Do(s.Context())
	if err := result.Error(); err != nil {
		return out, err
	}
	answer, err := result.Raw()
	if err == nil {
		err = json.Unmarshal(answer, &out)
	}
	return out, err
}

// deletion is a workspace as it was before it was deleted.
type deletion struct {
	path, cluster string
	objects       map[string]bundle.Object
	// coming is the body that begins it, and ends it.
	coming string
}

// loses has ann found workspace team in root, fill it, and delete it.
func (s *society) loses(fill func(path string)) *deletion {
	s.Helper()
	l := &deletion{path: s.founds("ann", "team")}
	l.cluster = clusterOf(s.T, s, l.path)
	if fill != nil {
		fill(l.path)
	}
	page, err := s.asksForBundle("boss", l.path, "unsealed", "true")
	if err != nil {
		s.Fatal(err)
	}
	l.objects, _, _ = linesOf(s.T, page)
	body, err := json.Marshal(bundle.Coming{LogicalCluster: l.objects[bundle.LogicalClusterKey].Object})
	if err != nil {
		s.Fatal(err)
	}
	l.coming = string(body)
	s.deletes("team")
	return l
}

// deletes deletes a workspace of root, and waits until it is gone.
func (s *society) deletes(name string) {
	s.Helper()
	boss, err := dynamic.NewForConfig(s.at.configOf(s.T, "boss", clusters.Root))
	if err != nil {
		s.Fatal(err)
	}
	if err := boss.Resource(workspacesGVR).Delete(s.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
	s.until(name+" is gone", func() bool {
		_, err := boss.Resource(workspacesGVR).Get(s.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// lines are the objects that are written.
func (l *deletion) lines(t *testing.T) string {
	t.Helper()
	var lines []string
	for key, o := range l.objects {
		if bundle.LeftAlone(key) == "" {
			lines = append(lines, line(t, o))
		}
	}
	return strings.Join(lines, "\n")
}

// A workspace that was deleted is back with its name, its uids and its tokens. Until it is there as a whole nobody sees
// it.
func TestADeletedWorkspaceComesBackAsItWas(t *testing.T) {
	s := startSociety(t)
	var token string
	l := s.loses(func(path string) {
		ann := s.as("ann", path)
		if _, err := ann.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"colour": "blue"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		binding := toUser("default", "cluster-admin", "")
		binding.Subjects = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "default"}}
		if _, err := ann.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := ann.RbacV1().ClusterRoleBindings().Create(t.Context(), toUser("ann", "cluster-admin", "ann"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := ann.RbacV1().ClusterRoleBindings().Delete(t.Context(), clusters.CreatorBinding, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		request, err := ann.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		token = request.Status.Token
	})
	frozen, err := s.takesIn(http.MethodPost, "boss", "root", l.coming)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.takesIn(http.MethodPut, "boss", "root", l.lines(t), "cluster", l.cluster, "freeze", frozen.Freeze); err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"ann", "boss"} {
		for _, place := range []string{l.path, l.cluster} {
			// clients ask again by themselves
			within, cancel := context.WithTimeout(t.Context(), time.Second)
			if got, err := s.as(who, place).CoreV1().ConfigMaps("default").List(within, metav1.ListOptions{}); err == nil {
				t.Errorf("%s sees %s of what is not there yet at %s", who, got, place)
			}
			cancel()
		}
	}
	if _, err := s.takesIn(http.MethodPost, "boss", "root", l.coming, "freeze", frozen.Freeze); err != nil {
		t.Fatal(err)
	}
	page, err := s.asksForBundle("boss", l.path, "unsealed", "true")
	if err != nil {
		t.Fatal(err)
	}
	now, header, _ := linesOf(t, page)
	if header.Cluster != l.cluster {
		t.Errorf("it is logical cluster %s, and was %s", header.Cluster, l.cluster)
	}
	for key, was := range l.objects {
		if is := now[key]; key != bundle.LogicalClusterKey && string(is.Object) != string(was.Object) {
			t.Errorf("%s is %s, was %s", key, is.Object, was.Object)
		}
	}
	for key := range now {
		if _, ok := l.objects[key]; !ok {
			t.Errorf("%s is new", key)
		}
	}
	eventually(t, "the token of before is good", func(ctx context.Context) error {
		_, err := s.at.kubeOf(t, token, clusters.Root).Discovery().ServerVersion()
		return err
	})
	if _, err := s.as("boss", l.path).RbacV1().ClusterRoleBindings().Get(t.Context(), clusters.CreatorBinding, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a binding that was deleted before is back: %v", err)
	}
	if settings, err := s.as("ann", l.path).CoreV1().ConfigMaps("default").Get(t.Context(), "settings", metav1.GetOptions{}); err != nil || settings.Data["colour"] != "blue" {
		t.Errorf("ann finds %v: %v", settings, err)
	}
	// an answer may have been lost, and the request be made again
	if _, err := s.takesIn(http.MethodPost, "boss", "root", l.coming, "freeze", frozen.Freeze); err != nil {
		t.Errorf("settle again: %v", err)
	}
	if _, err := s.takesIn(http.MethodPost, "boss", "root", l.coming); codeOf(err) != http.StatusConflict {
		t.Errorf("it comes again: %v", err)
	}
	s.ready("team")
	s.deletes("team") // like any other
}

// What is taken in is checked by no admission, and is somebody else's: it is for whom the shard's administrators let.
func TestAWorkspaceIsTakenInByWhomTheShardsAdministratorsLet(t *testing.T) {
	s := startSociety(t)
	l := s.loses(nil)
	for _, verb := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		for _, who := range []string{"ann", "bob"} {
			_, err := s.takesIn(verb, who, "root", l.coming, "cluster", l.cluster, "freeze", "1-1")
			s.refused(who+" asks to "+verb, err)
		}
	}
	// who may use the path in a workspace of their own, may not
	home := s.founds("ann", "home")
	_, err := s.takesIn(http.MethodPost, "ann", home, l.coming)
	s.refused("ann takes it in at home", err)
	req := s.as("ann", home, func(c *rest.Config) { c.Impersonate.UserName = "boss" }).Discovery().RESTClient().Post().AbsPath(bundle.ComingPath)
	s.refused("ann does it as boss", req.Body([]byte(l.coming)).Do(t.Context()).Error())
}

func TestWhatCannotComeSaysWhy(t *testing.T) {
	s := startSociety(t)
	l := s.loses(nil)
	there := s.founds("ann", "there")
	page, err := s.asksForBundle("boss", there, "unsealed", "true")
	if err != nil {
		t.Fatal(err)
	}
	others, _, _ := linesOf(t, page)
	is, err := json.Marshal(bundle.Coming{LogicalCluster: others[bundle.LogicalClusterKey].Object})
	if err != nil {
		t.Fatal(err)
	}
	workspace := func(text string) string { return strings.TrimSuffix(l.coming, "}") + `,"workspace":` + text + "}" }
	for name, c := range map[string]struct {
		body, parent, says string
		code               int32
	}{
		"no JSON":                     {"{", "root", "the body is not", http.StatusBadRequest},
		"nothing":                     {"{}", "root", "cannot be read", http.StatusBadRequest},
		"another kind":                {strings.Replace(l.coming, `"LogicalCluster"`, `"Thing"`, 1), "root", "it is Thing", http.StatusBadRequest},
		"another cluster's workspace": {strings.Replace(l.coming, `"cluster":"root"`, `"cluster":"elsewhere"`, 1), "root", "was in logical cluster elsewhere", http.StatusBadRequest},
		"a name that leads elsewhere": {strings.ReplaceAll(l.coming, l.cluster, "../system"), "root", "the name of no logical cluster", http.StatusBadRequest},
		"cluster root":                {strings.ReplaceAll(l.coming, l.cluster, "root"), "root", "the name of no logical cluster", http.StatusBadRequest},
		"not Ready":                   {strings.Replace(l.coming, `"phase":"Ready"`, `"phase":"Initializing"`, 1), "root", "it was not Ready", http.StatusBadRequest},
		"another path":                {strings.Replace(l.coming, `"root:team"`, `"root:other"`, 1), "root", "it was at root:other", http.StatusBadRequest},
		"another Workspace":           {workspace(`{"kind":"Workspace","apiVersion":"tenancy.kcp.io/v1alpha1","metadata":{"name":"x"}}`), "root", "belongs to", http.StatusBadRequest},
		"a system cluster":            {l.coming, "system:admin", "where it was", http.StatusBadRequest},
		"what is there":               {string(is), "root", "delete it first", http.StatusConflict},
		"nobody's parent":             {l.coming, "root:nobody", "not found", http.StatusNotFound},
	} {
		_, err := s.takesIn(http.MethodPost, "boss", c.parent, c.body)
		if codeOf(err) != c.code || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %d that says %q", name, err, c.code, c.says)
		}
	}
	frozen, err := s.takesIn(http.MethodPost, "boss", "root", l.coming)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.takesIn(http.MethodPost, "boss", "root", l.coming); codeOf(err) != http.StatusConflict {
		t.Errorf("somebody else takes it in: %v", err)
	}
	for name, query := range map[string][]string{"no cluster": {"freeze", frozen.Freeze}, "no freeze": {"cluster", l.cluster}} {
		if _, err := s.takesIn(http.MethodPut, "boss", "root", "", query...); codeOf(err) != http.StatusBadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	// a Workspace of the name is made meanwhile
	s.founds("ann", "team")
	if _, err := s.takesIn(http.MethodPost, "boss", "root", l.coming, "freeze", frozen.Freeze); codeOf(err) != http.StatusConflict {
		t.Errorf("another workspace of the name is there: %v", err)
	}
	if _, err := s.takesIn(http.MethodDelete, "boss", "root", "", "cluster", l.cluster, "freeze", frozen.Freeze); err != nil {
		t.Error(err)
	}
	if _, err := s.as("boss", l.cluster).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it is there: %v", err)
	}
}

// Whoever takes a workspace in may die: the leader removes what is left, and it can be taken in again.
func TestTheLeaderRemovesWhatHasNotComeAsAWhole(t *testing.T) {
	s := startSociety(t)
	l := s.loses(nil)
	frozen, err := s.takesIn(http.MethodPost, "boss", "root", l.coming)
	if err != nil {
		t.Fatal(err)
	}
	held := `{"key":"core/configmaps/default/x","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","namespace":"default","uid":"u","finalizers":["example.com/nobody-removes-it"],"annotations":{"kcp.io/cluster":"` + l.cluster + `"}}}}`
	if _, err := s.takesIn(http.MethodPut, "boss", "root", l.lines(t)+"\n"+held, "cluster", l.cluster, "freeze", frozen.Freeze); err != nil {
		t.Fatal(err)
	}
	etcd := etcdtest.Client(t, s.at.server.cfg.Etcd)
	// as when ten seconds have passed
	if _, err := etcd.Delete(t.Context(), "/registry/.frozen/"+l.cluster); err != nil {
		t.Fatal(err)
	}
	if _, err := s.takesIn(http.MethodPost, "boss", "root", l.coming, "freeze", frozen.Freeze); codeOf(err) != http.StatusGone {
		t.Errorf("settle: %v", err)
	}
	s.until("nothing is left", func() bool {
		_, err := s.at.shard.Clients.LogicalClusters.Get(clusters.With(t.Context(), logicalcluster.Name(l.cluster)), "cluster", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	left, err := etcd.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range left.Kvs {
		if strings.Contains(string(kv.Key), "/"+l.cluster) {
			t.Errorf("%s is left", kv.Key)
		}
	}
	if frozen, err = s.takesIn(http.MethodPost, "boss", "root", l.coming); err != nil {
		t.Fatal(err)
	}
	if _, err := s.takesIn(http.MethodPost, "boss", "root", l.coming, "freeze", frozen.Freeze); err != nil {
		t.Fatal(err)
	}
	s.ready("team")
}

// A logical cluster is on one shard. One that was on another shard may come to that of its parent once the other one
// says that it has it no more.
func TestAWorkspaceComesOnlyIfNoOtherShardHasIt(t *testing.T) {
	i := installPrepared(t, []func(*Server){withPeople}, "eu1")
	i.cordon("root")
	root := i.shards["root"]
	s := &society{root, root.at}
	root.create("team")
	cluster := root.ready("team")
	eu1 := &society{i.shards["eu1"], i.shards["eu1"].at}
	page, err := eu1.asksForBundle("boss", cluster, "unsealed", "true")
	if err != nil {
		t.Fatal(err)
	}
	objects, _, _ := linesOf(t, page)
	body, err := json.Marshal(bundle.Coming{LogicalCluster: objects[bundle.LogicalClusterKey].Object})
	if err != nil {
		t.Fatal(err)
	}
	// the Workspace alone is lost, as in a restore of the shard
	other := strings.Replace(string(body), `"name":"team"`, `"name":"again"`, 1)
	other = strings.Replace(other, `"root:team"`, `"root:again"`, 1)
	if _, err := s.takesIn(http.MethodPost, "boss", "root", other); codeOf(err) != http.StatusConflict || !strings.Contains(err.Error(), "shard eu1 has logical cluster "+cluster) {
		t.Errorf("eu1 has it: %v", err)
	}
	s.deletes("team")
	frozen, err := s.takesIn(http.MethodPost, "boss", "root", string(body))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.takesIn(http.MethodPost, "boss", "root", string(body), "freeze", frozen.Freeze); err != nil {
		t.Fatal(err)
	}
	if is := root.ready("team"); is != cluster {
		t.Errorf("it is logical cluster %s, and was %s", is, cluster)
	}
	if _, err := s.as("boss", "root:team").CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Errorf("at its new shard: %v", err)
	}
}

// takesBack takes in what was lost.
func (s *society) takesBack(l *deletion) {
	s.Helper()
	frozen, err := s.takesIn(http.MethodPost, "boss", "root", l.coming)
	if err == nil {
		_, err = s.takesIn(http.MethodPut, "boss", "root", l.lines(s.T), "cluster", l.cluster, "freeze", frozen.Freeze)
	}
	if err == nil {
		_, err = s.takesIn(http.MethodPost, "boss", "root", l.coming, "freeze", frozen.Freeze)
	}
	if err != nil {
		s.Fatal(err)
	}
}

// A workspace may come from another etcd, of other revisions. What clients know from before is older than what they
// find, and nothing that they, or the shard's controllers, do meets another version than it should.
func TestVersionsOfAWorkspaceThatHasComeAreNewer(t *testing.T) {
	s := startSociety(t)
	var was *corev1.ConfigMap
	var widget *unstructured.Unstructured
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	custom := func(path string) dynamic.NamespaceableResourceInterface {
		return must(dynamic.NewForConfig(s.at.configOf(t, "ann", logicalcluster.Name(path))))(s.operator).Resource(widgets)
	}
	l := s.loses(func(path string) {
		var err error
		if was, err = s.as("ann", path).CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		definition := &unstructured.Unstructured{Object: map[string]any{
			"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1", "metadata": map[string]any{"name": "widgets.example.com"},
			"spec": map[string]any{
				"group": "example.com", "scope": "Namespaced", "names": map[string]any{"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
				"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}},
			},
		}}
		definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
		client := must(dynamic.NewForConfig(s.at.configOf(t, "ann", logicalcluster.Name(path))))(s.operator)
		if _, err := client.Resource(definitions).Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.until("widgets are served", func() bool {
			widget, err = custom(path).Namespace("default").Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
				"kind": "Widget", "apiVersion": "example.com/v1", "metadata": map[string]any{"name": "w"},
			}}, metav1.CreateOptions{})
			return err == nil
		})
	})
	s.takesBack(l)
	s.ready("team")
	maps := s.as("ann", l.path).CoreV1().ConfigMaps("default")
	is, err := maps.Get(t.Context(), "settings", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if newer, err := resourceversion.CompareResourceVersion(is.ResourceVersion, was.ResourceVersion); err != nil || newer != 1 || len(is.ResourceVersion) < 15 {
		t.Errorf("it has version %s, and had %s", is.ResourceVersion, was.ResourceVersion)
	}
	if _, err := maps.Update(t.Context(), was, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of what was: %v", err)
	}
	if _, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: was.ResourceVersion}); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("a watch from before: %v", err)
	}
	from, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: is.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Stop()
	is.Data = map[string]string{"colour": "red"}
	if is, err = maps.Update(t.Context(), is, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if event := <-from.ResultChan(); event.Type != watch.Modified || event.Object.(*corev1.ConfigMap).ResourceVersion != is.ResourceVersion {
		t.Errorf("the watch sees %+v, and the update was answered with version %s", event, is.ResourceVersion)
	}
	applied, err := maps.Apply(t.Context(), applycorev1.ConfigMap("settings", "default").WithData(map[string]string{"size": "big"}), metav1.ApplyOptions{FieldManager: "t"})
	if err != nil {
		t.Fatal(err)
	}
	// custom objects are shown by a view of their own
	var now *unstructured.Unstructured
	s.until("widgets are served again", func() bool {
		now, err = custom(l.path).Namespace("default").Get(t.Context(), "w", metav1.GetOptions{})
		return err == nil
	})
	if newer, err := resourceversion.CompareResourceVersion(now.GetResourceVersion(), widget.GetResourceVersion()); err != nil || newer != 1 {
		t.Errorf("a widget has version %s, and had %s", now.GetResourceVersion(), widget.GetResourceVersion())
	}
	if _, err := custom(l.path).Namespace("default").Update(t.Context(), widget, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of a widget that was: %v", err)
	}
	for n := range 2 { // from a watch cache, too
		list, err := custom(l.path).List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		if err != nil || len(list.Items) != 1 || list.Items[0].GetResourceVersion() != now.GetResourceVersion() {
			t.Errorf("list %d: %v %+v", n, err, list)
		}
	}
	now.SetLabels(map[string]string{"l": ""})
	if _, err = custom(l.path).Namespace("default").Update(t.Context(), now, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	// the built-in ones are as old as the workspace is here
	account, err := s.as("ann", l.path).CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	account.Labels = map[string]string{"l": ""}
	if _, err := s.as("ann", l.path).CoreV1().ServiceAccounts("default").Update(t.Context(), account, metav1.UpdateOptions{}); err != nil {
		t.Errorf("the first change of a built-in object: %v", err)
	}
	// controllers of the shard know revisions: what ann's object owns goes with it
	owned := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "settings", UID: was.UID}}}}
	if _, err := s.as("ann", l.path).CoreV1().Secrets("default").Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(t.Context(), "settings", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &was.ResourceVersion}}); !apierrors.IsConflict(err) {
		t.Errorf("a deletion of what was: %v", err)
	}
	if err := maps.Delete(t.Context(), "settings", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &applied.ResourceVersion}}); err != nil {
		t.Errorf("a deletion of what is: %v", err)
	}
	s.until("what it owned is gone", func() bool {
		_, err := s.as("ann", l.path).CoreV1().Secrets("default").Get(t.Context(), "owned", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	s.deletes("team")
	s.takesBack(l) // again, of the same file
	s.ready("team")
	// whoever has watched all the time begins anew
	for patience, open := time.After(time.Minute), true; open; {
		select {
		case _, open = <-from.ResultChan():
		case <-patience:
			t.Fatal("a watch from before goes on")
		}
	}
	if again, err := maps.Get(t.Context(), "settings", metav1.GetOptions{}); err != nil {
		t.Error(err)
	} else if newer, err := resourceversion.CompareResourceVersion(again.ResourceVersion, applied.ResourceVersion); err != nil || newer != 1 {
		t.Errorf("the second time it has version %s, and had %s", again.ResourceVersion, applied.ResourceVersion)
	}
}
