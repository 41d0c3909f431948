package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/pkg/server/ui"
)

// browse sends a request with a body in JSON. Each further pair is a header, and a name may come more than once.
func browse(t testing.TB, client *http.Client, method, url, body string, headers ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for n := 0; n < len(headers); n += 2 {
		req.Header.Add(headers[n], headers[n+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(content)
}

func TestThePageIsServedToWhoMaySeeIt(t *testing.T) {
	s := startSociety(t, func(s *Server) {
		s.cfg.Docs = fstest.MapFS{"docs/README.md": {Data: []byte("# Start\n")}, "docs/OPERATIONS.md": {Data: []byte("# Operating\n")}}
	})
	paths := []string{ui.Path, ui.Path + "main.js", ui.Path + "vendor/preact.js", ui.Path + "docs/", ui.Path + "docs/OPERATIONS", status.InstallationPath, status.WorkspacesPath + "?search=root"}
	as := func(who, path string) (int, http.Header, string) {
		var headers []string
		if who != "" {
			headers = []string{"Authorization", "Bearer " + who}
		}
		return browse(t, s.at.client, "GET", s.at.url+path, "", headers...)
	}
	for who, want := range map[string]int{"": http.StatusUnauthorized, "nobody-knows-me": http.StatusUnauthorized, "ann": http.StatusForbidden, "boss": http.StatusOK} {
		for _, path := range paths {
			if code, _, body := as(who, path); code != want || want != http.StatusOK && strings.Contains(body, "<html") {
				t.Errorf("%s as %q: %d %.200s, want %d", path, who, code, body, want)
			}
		}
	}
	admin := s.at.adminIn(t, "system:admin").RbacV1()
	if _, err := admin.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "looks"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"get"}, NonResourceURLs: []string{"/ui/*", "/regent/v1/*"}},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.ClusterRoleBindings().Create(t.Context(), toUser("ann", "looks", "ann"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		until(t, "ann sees "+path, func() bool { code, _, _ := as("ann", path); return code == http.StatusOK })
	}
	code, header, body := as("ann", ui.Path)
	if policy := header.Get("Content-Security-Policy"); code != http.StatusOK || !strings.Contains(body, `src="main.js"`) ||
		!strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("%d, policy %q: %.200s", code, policy, body)
	}
	if code, _, body := browse(t, s.at.client, "POST", s.at.url+routing.StepDownPath, "{}", "Authorization", "Bearer ann", "Sec-Fetch-Site", "same-origin"); code != http.StatusForbidden {
		t.Errorf("who may look may have the leader step down: %d %s", code, body)
	}
}

// A browser shows a client certificate to whoever makes it ask.
func TestOtherSitesCannotHaveABrowserWrite(t *testing.T) {
	i := install(t)
	e := i.open("f")
	root := i.shards["root"].at
	admin, err := rest.HTTPClientFor(root.adminConfig(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.CloseIdleConnections()
	i.until("root", "root has its namespace", func() bool { // it is Ready before
		code, _, _ := browse(t, admin, "GET", root.url+"/clusters/root/api/v1/namespaces/default", "")
		return code == http.StatusOK
	})
	for place, at := range map[string]struct {
		url   string
		admin *http.Client
	}{"a server": {root.url, admin}, "a front": {e.url, e.admin}} {
		writes, n := at.url+"/clusters/root/api/v1/namespaces/default/configmaps", 0
		for _, c := range []struct {
			name    string
			headers []string
			want    int
		}{
			{"kubectl", nil, http.StatusCreated},
			{"the page", []string{"Sec-Fetch-Site", "same-origin", "Origin", at.url}, http.StatusCreated},
			{"the page, in an old browser", []string{"Origin", at.url}, http.StatusCreated},
			{"a person", []string{"Sec-Fetch-Site", "none"}, http.StatusCreated},
			{"another site", []string{"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"}, http.StatusForbidden},
			{"another port", []string{"Sec-Fetch-Site", "same-site", "Origin", "https://127.0.0.1:1"}, http.StatusForbidden},
			{"another site, in an old browser", []string{"Origin", "https://evil.example"}, http.StatusForbidden},
			{"a sandbox", []string{"Origin", "null"}, http.StatusForbidden},
		} {
			n++
			name := fmt.Sprintf("%c-%d", place[2], n)
			body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"}}`
			if code, _, answer := browse(t, at.admin, "POST", writes, body, c.headers...); code != c.want {
				t.Errorf("%s, of %s: %d %s, want %d", c.name, place, code, answer, c.want)
			}
			// whoever asks: reading is no write, and other sites are not shown the answer
			code, _, _ := browse(t, at.admin, "GET", writes+"/"+name, "", c.headers...)
			if want := map[bool]int{true: http.StatusOK, false: http.StatusNotFound}[c.want == http.StatusCreated]; code != want {
				t.Errorf("%s, of %s: reading gives %d, want %d", c.name, place, code, want)
			}
		}
	}
	// It is refused before anybody asks who it is.
	for _, path := range []string{"/clusters/root/api/v1/namespaces", routing.StepDownPath, "/livez"} {
		if code, _, body := browse(t, root.client, "POST", root.url+path, "{}", "Origin", "https://evil.example"); code != http.StatusForbidden || !strings.Contains(body, "cross-origin") {
			t.Errorf("a stranger on another site, %s: %d %s", path, code, body)
		}
	}
	if code, _, body := browse(t, root.client, "POST", root.url+"/clusters/root/api/v1/namespaces", "{}"); code != http.StatusUnauthorized {
		t.Errorf("a stranger: %d %s", code, body)
	}
	if code, _, _ := browse(t, root.client, "GET", root.url+"/livez", "", "Origin", "https://evil.example"); code != http.StatusOK {
		t.Errorf("probes: %d", code)
	}
}

// A browser lets every site read what comes over a websocket.
func TestOtherSitesCannotHaveABrowserWatch(t *testing.T) {
	i := install(t)
	e := i.open("f")
	root := i.shards["root"].at
	for place, c := range map[string]struct {
		url  string
		open int // what opens a websocket is answered; a front passes none on
	}{"a server": {root.url, http.StatusSwitchingProtocols}, "a front": {e.url, http.StatusBadRequest}} {
		config := root.adminConfig(t, "")
		config.NextProtos = []string{"http/1.1"} // HTTP/2 has no upgrades
		admin, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		defer admin.CloseIdleConnections()
		for name, from := range map[string]struct {
			headers []string
			other   bool
		}{
			"another site":                    {[]string{"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"}, true},
			"another site, in an old browser": {[]string{"Origin", "https://evil.example"}, true},
			"a sandbox":                       {[]string{"Origin", "null"}, true},
			"the page":                        {[]string{"Sec-Fetch-Site", "same-origin", "Origin", c.url}, false},
			"the page, in an old browser":     {[]string{"Origin", c.url}, false},
		} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url+"/clusters/root/api/v1/secrets?watch=true&timeoutSeconds=1", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			for n := 0; n < len(from.headers); n += 2 {
				req.Header.Set(from.headers[n], from.headers[n+1])
			}
			for header, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
				req.Header.Set(header, value)
			}
			resp, err := admin.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if opened := resp.StatusCode == http.StatusSwitchingProtocols; opened && from.other {
				t.Errorf("%s has a browser open a websocket to %s", name, place)
			} else if !from.other && resp.StatusCode != c.open {
				t.Errorf("%s, to %s: %s, want %d", name, place, resp.Status, c.open)
			}
		}
	}
}
