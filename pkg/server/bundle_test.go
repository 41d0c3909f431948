package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/server/bundle"
)

// asksFor returns the answer to a user who asks for a path in a cluster.
func (s *society) asksFor(path, who, cluster string, query ...string) ([]byte, error) {
	s.Helper()
	req := s.as(who, cluster).Discovery().RESTClient().Get().AbsPath(path)
	for i := 0; i < len(query); i += 2 {
		req = req.Param(query[i], query[i+1])
	}
	result := req.Do(s.Context())
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

// asksForBundle returns the answer to a user who asks for a page of a bundle.
func (s *society) asksForBundle(who, cluster string, query ...string) ([]byte, error) {
	s.Helper()
	return s.asksFor(bundle.Path, who, cluster, query...)
}

// linesOf returns the objects of a page by key, and whether it is the last one.
func linesOf(t *testing.T, page []byte) (objects map[string]bundle.Object, header bundle.Header, last bool) {
	t.Helper()
	objects = map[string]bundle.Object{}
	for line := range bytes.Lines(page) {
		var l bundle.Line
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatal(err)
		}
		switch {
		case l.Header != nil:
			header = *l.Header
		case l.Page != nil:
			last = !l.Page.More
		case l.Object != nil:
			objects[l.Key] = *l.Object
		}
	}
	return objects, header, last
}

// A bundle has everything, so only who may read everything has it. Bob may get the path, Eve may read everything but
// not get the path.
func TestABundleIsForWhoMayReadEverything(t *testing.T) {
	s := startSociety(t)
	team := s.founds("ann", "team")
	other := s.founds("eve", "other")
	ann := s.as("ann", team)
	if _, err := ann.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "key"}, StringData: map[string]string{"k": "hidden"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for who, rules := range map[string][]rbacv1.PolicyRule{
		"bob": {
			{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}}, {Verbs: []string{"get"}, NonResourceURLs: []string{bundle.Path}},
			{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"*"}},
		},
		"eve": {{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}}, {Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}},
	} {
		if _, err := ann.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: who}, Rules: rules}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := ann.RbacV1().ClusterRoleBindings().Create(t.Context(), toUser(who, who, who), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.until("bob and eve have their roles", func() bool {
		_, bob := s.as("bob", team).CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
		_, eve := s.as("eve", team).CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
		return bob == nil && eve == nil
	})
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	for _, how := range [][]string{{"unsealed", "true"}, {"sealTo", key.Recipient().String()}} {
		for who, cluster := range map[string]string{"bob": team, "eve": team, "ann": other} {
			_, err := s.asksForBundle(who, cluster, how...)
			s.refused(who+" asks for the bundle of "+cluster, err)
		}
		for _, who := range []string{"ann", "boss"} {
			page, err := s.asksForBundle(who, team, how...)
			if err != nil {
				t.Fatalf("%s: %v", who, err)
			}
			objects, header, last := linesOf(t, page)
			if header.Path != team || header.Revision == 0 || !last {
				t.Errorf("%s: %+v, last: %v", who, header, last)
			}
			secret := objects["core/secrets/default/key"]
			if how[0] == "sealTo" {
				if bytes.Contains(page, []byte("aGlkZGVu")) || secret.Sealed == nil { // "hidden"
					t.Errorf("%s: a secret is not sealed", who)
				}
				if secret, err = bundle.Unseal(secret, []age.Identity{key}); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Contains(secret.Object, []byte("aGlkZGVu")) {
				t.Errorf("%s: the secret is %s", who, secret.Object)
			}
			for name := range objects {
				if strings.Contains(string(objects[name].Object), `"kcp.io/cluster"`) && !strings.Contains(string(objects[name].Object), `"kcp.io/cluster":"`+header.Cluster+`"`) {
					t.Errorf("%s is of another cluster: %s", name, objects[name].Object)
				}
			}
		}
	}
}

func TestWhatIsNoBundleIsRefusedAndSaysWhy(t *testing.T) {
	s := startSociety(t)
	team := s.founds("ann", "team")
	ann := s.as("ann", team)
	if _, err := ann.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "key"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cluster string
		query   []string
		code    int32
		says    string
	}{
		"secrets without a word of them": {team, nil, http.StatusBadRequest, "core/secrets/default/key is secret"},
		"sealed and not":                 {team, []string{"unsealed", "true", "sealTo", "age1lggyhqrw2nlhcxprm67z43rta597azn8gknawjehu9d9dl0jq3yqqvfafg"}, http.StatusBadRequest, "sealed or it is not"},
		"no recipient":                   {team, []string{"sealTo", "me"}, http.StatusBadRequest, `"me" is no recipient`},
		"a page of no revision":          {team, []string{"after", "core/configmaps/default/x", "unsealed", "true"}, http.StatusBadRequest, "page before"},
		"a revision that is none":        {team, []string{"revision", "-1", "unsealed", "true"}, http.StatusBadRequest, "page before"},
		"a revision that is to come":     {team, []string{"revision", "99999999", "unsealed", "true"}, http.StatusGone, "begin the bundle again"},
		"all clusters":                   {"*", []string{"unsealed", "true"}, http.StatusBadRequest, "one logical cluster"},
		"a system cluster":               {"system:admin", []string{"unsealed", "true"}, http.StatusBadRequest, "one logical cluster"},
		"nobody's cluster":               {"root:nobody", []string{"unsealed", "true"}, http.StatusNotFound, "nobody"},
	} {
		_, err := s.asksForBundle("boss", c.cluster, c.query...)
		status, ok := err.(apierrors.APIStatus) //nolint:errorlint // it is not wrapped
		if !ok || status.Status().Code != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %d that says %q", name, err, c.code, c.says)
		}
	}
	var code int
	s.as("boss", team).Discovery().RESTClient().Post().AbsPath(bundle.Path).Do(t.Context()).StatusCode(&code)
	if code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", code)
	}
}

// What every workspace has is in no bundle until somebody changes it; what somebody has deleted of it is named.
func TestABundleTellsWhatWasChangedOfWhatEveryWorkspaceHas(t *testing.T) {
	s := startSociety(t)
	team := s.founds("ann", "team")
	keys := func() (all []string, objects map[string]bundle.Object) {
		page, err := s.asksForBundle("ann", team, "unsealed", "true")
		if err != nil {
			t.Fatal(err)
		}
		objects, _, _ = linesOf(t, page)
		for key := range objects {
			all = append(all, key)
		}
		slices.Sort(all)
		return all, objects
	}
	if all, _ := keys(); !slices.Equal(all, []string{"core.kcp.io/logicalclusters/cluster"}) {
		t.Errorf("a new workspace has %q", all)
	}
	ann := s.as("ann", team)
	if _, err := ann.CoreV1().Namespaces().Patch(t.Context(), "default", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := ann.RbacV1().ClusterRoleBindings().Delete(t.Context(), "workspace-admin", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	page, err := s.asksForBundle("boss", team, "unsealed", "true")
	if err != nil {
		t.Fatal(err)
	}
	objects, _, _ := linesOf(t, page)
	if o := objects["rbac.authorization.k8s.io/clusterrolebindings/workspace-admin"]; !o.Deleted || o.Object != nil {
		t.Errorf("what was deleted is %+v", o)
	}
	if o := objects["core/namespaces/default"]; !bytes.Contains(o.Object, []byte(`"a":"b"`)) {
		t.Errorf("what was changed is %s", o.Object)
	}
}
