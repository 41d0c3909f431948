package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/bundle"
)

// freezes makes a request about a freeze: with lines it is a PUT.
func (s *society) freezes(verb, who, cluster, freeze string, lines ...string) (out bundle.Frozen, err error) {
	s.Helper()
	return freezes(s.Context(), s.as(who, cluster), verb, freeze, lines...)
}

func freezes(ctx context.Context, client kubernetes.Interface, verb, freeze string, lines ...string) (out bundle.Frozen, err error) {
	req := client.Discovery().RESTClient().Verb(verb).AbsPath(bundle.FreezePath)
	if freeze != "" {
		req = req.Param("freeze", freeze)
	}
	if len(lines) > 0 {
		req = req.Body([]byte(strings.Join(lines, "\n")))
	}
	result := req.Do(ctx)
	if err := result.Error(); err != nil {
		return out, err
	}
	answer, err := result.Raw()
	if err == nil {
		err = json.Unmarshal(answer, &out)
	}
	return out, err
}

// line is an object as it is written.
func line(t *testing.T, o bundle.Object) string {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func codeOf(err error) int32 {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return status.Status().Code
}

// What is written under a freeze is checked by no admission. So who may do everything in a workspace may not, and nor
// may who has the right in some other workspace.
func TestAFreezeIsForWhomTheShardsAdministratorsLet(t *testing.T) {
	s := startSociety(t)
	team, other := s.founds("ann", "team"), s.founds("eve", "other")
	for _, verb := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		for who, cluster := range map[string]string{"ann": team, "eve": team, "bob": other} {
			_, err := s.freezes(verb, who, cluster, "1-1", `{"key":"core/configmaps/default/x","deleted":true}`)
			s.refused(who+" asks to "+verb+" the freeze of "+cluster, err)
		}
	}
	rule := rbacv1.PolicyRule{Verbs: []string{"post", "put", "delete"}, NonResourceURLs: []string{bundle.FreezePath}}
	for _, place := range []string{clusters.SystemAdmin.String(), team} {
		boss := s.as("boss", place)
		rules := []rbacv1.PolicyRule{rule, {Verbs: []string{"access"}, NonResourceURLs: []string{"/"}}}
		if _, err := boss.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "freeze"}, Rules: rules}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := boss.RbacV1().ClusterRoleBindings().Create(t.Context(), toUser("freeze", "freeze", "bob"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var frozen bundle.Frozen
	eventually(t, "bob has the right in both", func(context.Context) (err error) {
		frozen, err = s.freezes(http.MethodPost, "bob", team, "")
		return err
	})
	_, err := s.freezes(http.MethodPost, "boss", team, "")
	if codeOf(err) != http.StatusConflict {
		t.Errorf("frozen twice: %v", err)
	}
	if _, err := s.freezes(http.MethodDelete, "bob", team, frozen.Freeze); err != nil {
		t.Error(err)
	}
	// in a workspace of its own a user may impersonate everybody
	_, err = freezes(t.Context(), s.as("ann", team, func(c *rest.Config) { c.Impersonate.UserName = "bob" }), http.MethodPost, "")
	s.refused("ann freezes as bob", err)
	_, err = s.freezes(http.MethodPost, "bob", other, "")
	s.refused("bob freezes another workspace", err)
}

// The objects of each resource are taken for what they are.
func TestEachResourceMayBeWrittenUnderAFreeze(t *testing.T) {
	s := startSociety(t)
	team := s.founds("ann", "team")
	frozen, err := s.freezes(http.MethodPost, "boss", team, "")
	if err != nil {
		t.Fatal(err)
	}
	all, err := s.as("boss", team).Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, list := range all {
		group, _, _ := strings.Cut(list.GroupVersion, "/")
		if !strings.Contains(list.GroupVersion, "/") {
			group = "core"
		}
		for _, r := range list.APIResources {
			key := group + "/" + r.Name + "/x"
			if bundle.LeftAlone(key) != "" || !slices.Contains(r.Verbs, "update") {
				continue
			}
			// without a uid nothing is written, and the kind is looked at before
			_, err := s.freezes(http.MethodPut, "boss", team, frozen.Freeze, fmt.Sprintf(`{"key":%q,"object":{"kind":%q,"apiVersion":%q,"metadata":{"name":"x"}}}`, key, r.Kind, list.GroupVersion))
			if seen++; err == nil || strings.Contains(err.Error(), "not of the kind") {
				t.Errorf("%s of %s at %s: %v", r.Kind, list.GroupVersion, key, err)
			}
		}
	}
	if seen < 10 {
		t.Errorf("%d resources: this shows nothing", seen)
	}
}

func TestWhatIsNotWrittenUnderAFreezeSaysWhy(t *testing.T) {
	s := startSociety(t)
	team := s.founds("ann", "team")
	frozen, err := s.freezes(http.MethodPost, "boss", team, "")
	if err != nil {
		t.Fatal(err)
	}
	cluster := clusterOf(t, s, team)
	good := `{"key":"core/configmaps/default/x","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","namespace":"default","uid":"u","annotations":{"kcp.io/cluster":"` + cluster + `"}}}}`
	for name, c := range map[string]struct {
		line, says string
	}{
		"no JSON":               {"{", "line 1"},
		"no key":                {`{"object":{}}`, "segments"},
		"a key that leads away": {strings.Replace(good, "configmaps/default", "configmaps/..", 1), `segment ".."`},
		"another name":          {strings.Replace(good, `"name":"x"`, `"name":"y"`, 1), "default/y"},
		"another namespace":     {strings.Replace(good, `"namespace":"default"`, `"namespace":"n"`, 1), "n/x"},
		"another cluster":       {strings.Replace(good, cluster, "other", 1), `of logical cluster "other"`},
		"no uid":                {strings.Replace(good, `"uid":"u",`, "", 1), "no uid"},
		"no object":             {`{"key":"core/configmaps/default/x"}`, "no object"},
		"a resource that nobody stores": {
			strings.Replace(strings.Replace(good, "core/configmaps", "core/things", 1), "ConfigMap", "Thing", 1), "stores no such resource",
		},
		"another kind of object":        {strings.Replace(good, `"kind":"ConfigMap"`, `"kind":"Secret"`, 1), "it is a Secret of v1, and not of the kind"},
		"another kind of custom object": {strings.Replace(good, "core/configmaps", "custom/example.com/W", 1), "it is a ConfigMap of v1, and not of the kind"},
		"what no version can read":      {strings.Replace(good, `"metadata"`, `"data":5,"metadata"`, 1), "cannot be stored"},
		"what is too large for etcd":    {strings.Replace(good, `"metadata"`, `"data":{"a":"`+strings.Repeat("x", 1700<<10)+`"},"metadata"`, 1), "too large"},
		"twice":                         {good + "\n" + good, "is there twice"},
		"the logical cluster":           {`{"key":"core.kcp.io/logicalclusters/cluster","deleted":true}`, "stay as they are"},
		"a workspace":                   {`{"key":"tenancy.kcp.io/workspaces/w","deleted":true}`, "stay as they are"},
		"a term that comes back":        {`{"key":"coordination.k8s.io/leases/default/l","deleted":true}`, "stay as they are"},
	} {
		// a slow machine takes longer than a freeze lasts
		if _, err := s.freezes(http.MethodPut, "boss", team, frozen.Freeze); err != nil {
			t.Errorf("renew: %v", err)
		}
		_, err := s.freezes(http.MethodPut, "boss", team, frozen.Freeze, c.line)
		if codeOf(err) != http.StatusBadRequest || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want 400 that says %q", name, err, c.says)
		}
	}
	if _, err := s.freezes(http.MethodPut, "boss", team, frozen.Freeze, strings.Repeat(good, 1+bundle.MaxWrite/len(good))); codeOf(err) != http.StatusBadRequest {
		t.Errorf("too much: %v", err)
	}
	for name, c := range map[string]struct {
		verb, cluster, freeze string
		code                  int32
	}{
		"no freeze":          {http.MethodPut, team, "", http.StatusBadRequest},
		"one that has ended": {http.MethodPut, team, "1-1", http.StatusGone},
		"GET":                {http.MethodGet, team, frozen.Freeze, http.StatusMethodNotAllowed},
		"all clusters":       {http.MethodPost, "*", "", http.StatusMethodNotAllowed},
		"a system cluster":   {http.MethodPost, "system:admin", "", http.StatusBadRequest},
		"nobody's cluster":   {http.MethodPost, "root:nobody", "", http.StatusNotFound},
	} {
		if _, err := s.freezes(c.verb, "boss", c.cluster, c.freeze, `{"key":"core/configmaps/default/x","deleted":true}`); codeOf(err) != c.code {
			t.Errorf("%s: %v, want %d", name, err, c.code)
		}
	}
}

func clusterOf(t *testing.T, s *society, path string) string {
	t.Helper()
	page, err := s.asksForBundle("boss", path, "unsealed", "true")
	if err != nil {
		t.Fatal(err)
	}
	_, header, _ := linesOf(t, page)
	return header.Cluster
}

// An object that is gone comes back as it was, uid and all, while its owner's requests wait.
func TestWhatIsWrittenUnderAFreezeIsServedAsItWas(t *testing.T) {
	s := startSociety(t)
	team := s.founds("ann", "team")
	maps := s.as("ann", team).CoreV1().ConfigMaps("default")
	was, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"colour": "blue"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	page, err := s.asksForBundle("boss", team, "unsealed", "true")
	if err != nil {
		t.Fatal(err)
	}
	objects, _, _ := linesOf(t, page)
	then := objects["core/configmaps/default/settings"]
	if err := maps.Delete(t.Context(), "settings", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	frozen, err := s.freezes(http.MethodPost, "boss", team, "")
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan error, 1)
	go func() {
		_, err := maps.Create(s.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "later"}}, metav1.CreateOptions{})
		waits <- err
	}()
	if _, err := s.freezes(http.MethodPut, "boss", team, frozen.Freeze, line(t, then), `{"key":"core/configmaps/default/new","deleted":true}`); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-waits:
		t.Errorf("ann's creation did not wait: %v", err)
	default:
	}
	if _, err := s.freezes(http.MethodDelete, "boss", team, frozen.Freeze); err != nil {
		t.Fatal(err)
	}
	if err := <-waits; err != nil {
		t.Errorf("ann's creation: %v", err)
	}
	is, err := maps.Get(t.Context(), "settings", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	is.ResourceVersion = was.ResourceVersion
	if !reflect.DeepEqual(is, was) {
		t.Errorf("%v, was %v", is, was)
	}
	if _, err := maps.Get(t.Context(), "new", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what is new: %v", err)
	}
	if page, err = s.asksForBundle("boss", team, "unsealed", "true"); err != nil {
		t.Fatal(err)
	}
	objects, _, _ = linesOf(t, page)
	if now := objects["core/configmaps/default/settings"]; !bytes.Equal(now.Object, then.Object) {
		t.Errorf("in etcd it is %s, was %s", now.Object, then.Object)
	}
}

// A workspace that is empty when it is deleted goes in one write with its LogicalCluster. While it is frozen it does
// not: what is about to be written would be left behind.
func TestAFrozenWorkspaceIsNotDeletedUntilItThaws(t *testing.T) {
	s := startSociety(t)
	team := s.founds("ann", "team")
	frozen, err := s.freezes(http.MethodPost, "boss", team, "")
	if err != nil {
		t.Fatal(err)
	}
	boss, err := dynamic.NewForConfig(s.at.configOf(t, "boss", clusters.Root))
	if err != nil {
		t.Fatal(err)
	}
	if err := boss.Resource(workspacesGVR).Delete(t.Context(), "team", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.freezes(http.MethodPut, "boss", team, frozen.Freeze); err != nil {
		t.Errorf("it is there no more: %v", err)
	}
	if _, err := s.freezes(http.MethodDelete, "boss", team, frozen.Freeze); err != nil {
		t.Errorf("it is there no more: %v", err)
	}
	s.until("the workspace is gone", func() bool {
		_, err := boss.Resource(workspacesGVR).Get(t.Context(), "team", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}
