package apis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/regent-project/regent/test/etcdtest"
)

const anAnnotation = logicalcluster.AnnotationKey

var twins = []logicalcluster.Name{"root", "aa", "bb", "aabb", "system:admin"}

// createTwins creates objects of equal names in all twins, and returns nothing but failures.
func createTwins(t *testing.T, s *shard, names ...string) {
	t.Helper()
	for _, cluster := range twins {
		for _, name := range names {
			cm := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"twin": "yes", "in": strings.ReplaceAll(cluster.String(), ":", "-")}},
				Data:       map[string]string{"cluster": cluster.String()},
			}
			if _, err := s.kube(t, cluster).CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
				t.Fatalf("create %s in %s: %v", name, cluster, err)
			}
		}
	}
}

func TestEqualNamesInManyClustersNeverMeet(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	createTwins(t, s, "one", "two")

	t.Run("in etcd", func(t *testing.T) {
		resp, err := s.storage.Etcd().Get(t.Context(), "/registry/core/configmaps/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for _, kv := range resp.Kvs {
			got = append(got, string(kv.Key))
		}
		for _, cluster := range twins {
			want = append(want, fmt.Sprintf("/registry/core/configmaps/%s/default/one", cluster), fmt.Sprintf("/registry/core/configmaps/%s/default/two", cluster))
		}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("keys are %q, want %q", got, want)
		}
	})
	// A consistent list waits for the cache, so that lists at resourceVersion 0 then see all.
	if _, err := s.kube(t, "*").CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, opts := range map[string]metav1.ListOptions{
		"in a list":                       {},
		"in a list from cache":            {ResourceVersion: "0"},
		"in a list by label":              {LabelSelector: "twin=yes"},
		"in a list by label, from cache":  {LabelSelector: "twin=yes", ResourceVersion: "0"},
		"in a list by field":              {FieldSelector: "metadata.namespace=default"},
		"in a list by field, from cache":  {FieldSelector: "metadata.namespace=default", ResourceVersion: "0"},
		"in a page that holds everything": {Limit: 500},
		"in a page of labels, from cache": {Limit: 500, LabelSelector: "twin", ResourceVersion: "0"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, cluster := range twins {
				assertList(t, s, cluster, "default", opts, []string{"one", "two"})
				assertList(t, s, cluster, "", opts, []string{"one", "two"})
			}
			all, err := s.kube(t, "*").CoreV1().ConfigMaps("").List(t.Context(), opts)
			if err != nil || len(all.Items) != 2*len(twins) {
				t.Errorf("over all clusters: %d items, %v, want %d", len(all.Items), err, 2*len(twins))
			}
		})
	}
	t.Run("by name over all clusters", func(t *testing.T) {
		for _, rv := range []string{"", "0"} {
			all, err := s.kube(t, "*").CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=one", ResourceVersion: rv})
			if err != nil || len(all.Items) != len(twins) {
				t.Errorf("resourceVersion %q: %d items, %v, want %d", rv, len(all.Items), err, len(twins))
			}
		}
	})
	t.Run("by another cluster's label", func(t *testing.T) {
		assertList(t, s, "aa", "default", metav1.ListOptions{LabelSelector: "in=bb"}, nil)
	})
	t.Run("when one is deleted", func(t *testing.T) {
		if err := s.kube(t, "aa").CoreV1().ConfigMaps("default").Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := s.kube(t, "bb").CoreV1().ConfigMaps("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		assertList(t, s, "aa", "", metav1.ListOptions{}, []string{"two"})
		assertList(t, s, "bb", "", metav1.ListOptions{}, nil)
		assertList(t, s, "aabb", "", metav1.ListOptions{}, []string{"one", "two"})
	})
}

// assertList checks names and origin of what a cluster lists.
func assertList(t *testing.T, s *shard, cluster logicalcluster.Name, namespace string, opts metav1.ListOptions, want []string) {
	t.Helper()
	list, err := s.kube(t, cluster).CoreV1().ConfigMaps(namespace).List(t.Context(), opts)
	if err != nil {
		t.Fatalf("list %s: %v", cluster, err)
	}
	var got []string
	for _, item := range list.Items {
		got = append(got, item.Name)
		if item.Annotations[anAnnotation] != cluster.String() || item.Data["cluster"] != cluster.String() {
			t.Errorf("cluster %s lists %s of cluster %s (annotation %q)", cluster, item.Name, item.Data["cluster"], item.Annotations[anAnnotation])
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("cluster %s lists %q, want %q", cluster, got, want)
	}
}

// TestRestartedCacheHoldsEqualNamesOfAllClusters is the regression test of client-go's watch list, whose store is keyed
// by namespace and name: a server that fills its watch cache through it loses all but one of equal names.
func TestRestartedCacheHoldsEqualNamesOfAllClusters(t *testing.T) {
	way := etcdtest.Start(t)
	t.Run("first", func(t *testing.T) { createTwins(t, startShard(t, way, nil), "one") })
	s := startShard(t, way, nil)
	for _, cluster := range twins {
		assertList(t, s, cluster, "default", metav1.ListOptions{ResourceVersion: "0"}, []string{"one"})
	}
	all, err := s.kube(t, "*").CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil || len(all.Items) != len(twins) {
		t.Errorf("the cache holds %d objects, %v, want %d", len(all.Items), err, len(twins))
	}
}

func TestAWatchSeesItsClusterOnly(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, opts := range map[string]metav1.ListOptions{
		"all":      {},
		"by label": {LabelSelector: "twin=yes"},
		"by name":  {FieldSelector: "metadata.name=seen"},
	} {
		watches := map[logicalcluster.Name]watch.Interface{}
		for _, cluster := range slices.Concat(twins, []logicalcluster.Name{"*"}) {
			w, err := s.kube(t, cluster).CoreV1().ConfigMaps("").Watch(ctx, opts)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			watches[cluster] = w
		}
		createTwins(t, s, "seen", "last")
		for _, cluster := range twins {
			// If another cluster's object came, it would be among these.
			want := []string{"seen", "last"}
			if opts.FieldSelector != "" {
				want = want[:1]
			}
			for _, expected := range want {
				object := next(t, watches[cluster])
				if object.Name != expected || object.Annotations[anAnnotation] != cluster.String() {
					t.Errorf("%s: the watch in %s sees %s of %s, want %s", name, cluster, object.Name, object.Annotations[anAnnotation], expected)
				}
			}
		}
		seen := map[string]int{}
		for range twins {
			seen[next(t, watches["*"]).Annotations[anAnnotation]]++
		}
		if len(seen) == 0 {
			t.Errorf("%s: the watch over all clusters sees nothing", name)
		}
		for _, cluster := range twins {
			if err := s.kube(t, cluster).CoreV1().ConfigMaps("default").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func next(t *testing.T, w watch.Interface) *corev1.ConfigMap {
	t.Helper()
	event, ok := <-w.ResultChan()
	if !ok {
		t.Fatal("the watch ended")
	}
	cm, ok := event.Object.(*corev1.ConfigMap)
	if !ok {
		t.Fatalf("the watch sent %v", event.Object)
	}
	return cm
}

func TestAContinueTokenStaysInTheClusterItIsUsedIn(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	createTwins(t, s, "c1", "c2", "c3")
	for _, from := range append(twins, "*") {
		page, err := s.kube(t, from).CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{Limit: 1})
		if err != nil || page.Continue == "" {
			t.Fatalf("first page of %s: %v, continue %q", from, err, page.Continue)
		}
		for _, in := range twins {
			rest, err := s.kube(t, in).CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{Continue: page.Continue, Limit: 100})
			if apierrors.IsBadRequest(err) || apierrors.IsResourceExpired(err) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range rest.Items {
				if item.Annotations[anAnnotation] != in.String() {
					t.Errorf("a token of %s, used in %s, leads to %s of %s", from, in, item.Name, item.Annotations[anAnnotation])
				}
			}
		}
	}
	t.Run("forged", func(t *testing.T) {
		for _, start := range []string{"../bb/default/c1", "/../bb/default/c1", "../../secrets/x", "default/../../bb/default/c1"} {
			token := forge(t, start)
			list, err := s.kube(t, "aa").CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{Continue: token, Limit: 100})
			if !apierrors.IsBadRequest(err) {
				t.Errorf("start %q: %d items, %v, want a bad request", start, len(list.Items), err)
			}
		}
	})
	t.Run("pages make up the list", func(t *testing.T) {
		var got []string
		token := ""
		for {
			page, err := s.kube(t, "aabb").CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{Limit: 1, Continue: token})
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range page.Items {
				got = append(got, item.Annotations[anAnnotation]+"/"+item.Name)
			}
			if token = page.Continue; token == "" {
				break
			}
		}
		if want := []string{"aabb/c1", "aabb/c2", "aabb/c3"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
