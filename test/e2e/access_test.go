package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/regent-project/regent/test/e2e/harness"
)

// stranger is a process that issues tokens, and is asked whose tokens are and what users may do.
type stranger struct {
	*harness.Process
	t         *testing.T
	url       string
	authority *authority
	client    *http.Client
}

func startStranger(t *testing.T) *stranger {
	t.Helper()
	binary := harness.Program(t, "issuer")
	s := &stranger{t: t, authority: newAuthority(t, "issuer-ca")}
	cert, key := s.authority.issue("issuer")
	address := fmt.Sprintf("127.0.0.1:%d", harness.FreePorts(t, 1)[0])
	s.Process = harness.Start(t, "issuer", binary, "--address="+address, "--cert="+cert, "--key="+key)
	s.url = "https://" + address
	roots := x509.NewCertPool()
	roots.AddCert(s.authority.cert)
	s.client = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
	harness.Eventually(t, "the issuer answers", func() bool {
		_, err := s.tell("rotate", nil)
		return err == nil
	})
	return s
}

// tell has it do something.
func (s *stranger) tell(what string, body any) (answer string, err error) {
	content, err := json.Marshal(body)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/control/"+what, bytes.NewReader(content))
	if err != nil {
		return "", err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	said, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s %s %w", what, resp.Status, said, err)
	}
	return string(said), nil
}

func (s *stranger) must(what string, body any) string {
	s.t.Helper()
	said, err := s.tell(what, body)
	if err != nil {
		s.t.Fatal(err)
	}
	return said
}

// token is one of a user in groups, good for a while.
func (s *stranger) token(name string, life time.Duration, groups ...string) string {
	s.t.Helper()
	return s.must("token", map[string]any{"aud": "regent", "sub": name, "groups": groups, "exp": time.Now().Add(life).Unix()})
}

const authenticationHeader = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"

// issuerFile is an AuthenticationConfiguration with the issuer. Its group admins are members of system:masters.
func (s *stranger) issuerFile() string {
	s.t.Helper()
	ca, err := os.ReadFile(s.authority.file)
	if err != nil {
		s.t.Fatal(err)
	}
	return authenticationHeader + fmt.Sprintf(`jwt:
- issuer: {url: %q, audiences: [regent], certificateAuthority: %q}
  claimMappings:
    username: {expression: '"oidc:" + claims.sub'}
    groups: {expression: 'dyn(claims.groups).map(g, g == "admins" ? "system:masters" : "oidc:" + string(g))'}
`, s.url, ca)
}

// kubeconfig leads to one of its webhooks.
func (s *stranger) kubeconfig(path string) string {
	s.t.Helper()
	return write(s.t, "webhook.kubeconfig", fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}],
  clusters: [{name: a, cluster: {server: %q, certificate-authority: %q}}]}`, s.url+path, s.authority.file))
}

// bearer is somebody with a token and without a certificate.
type bearer struct {
	t       *testing.T
	ca, url string
	client  *http.Client
}

func newBearer(t *testing.T, ca, url string) *bearer {
	t.Helper()
	content, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(content)
	return &bearer{t, ca, url, &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}}
}

// kubectl runs it in a logical cluster.
func (b *bearer) kubectl(token, cluster string, args ...string) (string, error) {
	b.t.Helper()
	return b.run(cluster, append([]string{"--token=" + token}, args...))
}

// run runs kubectl with nobody's kubeconfig: args say who asks.
func (b *bearer) run(cluster string, args []string) (string, error) {
	b.t.Helper()
	cmd := harness.Command(b.t, "kubectl", append([]string{"--server=" + b.url + "/clusters/" + cluster, "--certificate-authority=" + b.ca}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+os.DevNull, "HOME="+b.t.TempDir())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// status is that of a list of namespaces in a logical cluster, 0 if there was no answer.
func (b *bearer) status(token, cluster string) int {
	return b.get(token, cluster+"/api/v1/namespaces")
}

// get returns the status of a read below /clusters/, 0 if there was no answer.
func (b *bearer) get(token, path string) int {
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.url+"/clusters/"+path, nil)
	if err != nil {
		return 0
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// until waits for a status, and returns how long it took.
func (b *bearer) until(within time.Duration, token, cluster string, want int) time.Duration {
	b.t.Helper()
	return b.await(within, want, func() int { return b.status(token, cluster) })
}

func (b *bearer) await(within time.Duration, want int, status func() int) time.Duration {
	b.t.Helper()
	began := time.Now()
	harness.EventuallyIn(b.t, within, fmt.Sprintf("status %d", want), func() bool { return status() == want })
	return time.Since(began)
}

// It is slow because a key that was withdrawn is trusted for up to a minute.
func TestTokensOfAnIssuerWorkUntilTheyAreRevoked(t *testing.T) {
	t.Parallel() // most of it is waiting
	issuer := startStranger(t)
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	file := write(t, "authentication.yaml", issuer.issuerFile())
	shard.Args = []string{"--authentication-config=" + file}
	r := shard.Start(t, "a")
	r.WaitRoot()
	b := newBearer(t, filepath.Join(r.Root, "pki", "ca.crt"), r.URL)

	ann, admin := issuer.token("ann", time.Hour, "dev"), issuer.token("bob", time.Hour, "admins")
	if out, err := b.kubectl(ann, "root", "get", "--raw=/clusters/root/api/v1/namespaces"); err == nil || !strings.Contains(out, "orbidden") || !strings.Contains(out, "oidc:ann") {
		t.Errorf("kubectl with a user's token: %v\n%s", err, out)
	}
	if out, err := b.kubectl(admin, "root", "get", "namespaces"); err != nil || !strings.Contains(out, "default") {
		t.Errorf("kubectl with an administrator's token: %v\n%s", err, out)
	}
	if out, err := b.kubectl(admin[:len(admin)-4]+"AAAA", "root", "get", "namespaces"); err == nil || !strings.Contains(out, "logged in") {
		t.Errorf("kubectl with a token that was changed: %v\n%s", err, out)
	}

	const life = 3 * time.Second
	var expires time.Time
	var short string
	// One that has expired before it was shown tells nothing.
	harness.Eventually(t, "a token that soon expires works", func() bool {
		expires = time.Now().Add(life).Truncate(time.Second)
		short = issuer.token("bob", life, "admins")
		return b.status(short, "root") == http.StatusOK
	})
	b.until(2*life, short, "root", http.StatusUnauthorized)
	t.Logf("a token was refused %v after it had expired", time.Since(expires).Round(10*time.Millisecond))

	// In its place: a file that is empty before it is written would be a failure of its own.
	replace(t, file, write(t, "nonsense.yaml", "nonsense"))
	harness.Eventually(t, "the faulty file counts", func() bool {
		return r.MetricSum("apiserver_authentication_config_controller_automatic_reloads_total", `status="failure"`) == 1
	})
	if got := b.status(admin, "root"); got != http.StatusOK {
		t.Errorf("with a faulty file: %d", got)
	}

	issuer.must("rotate", nil)
	fresh := issuer.token("bob", time.Hour, "admins")
	t.Logf("the first token of a new key worked after %v", b.until(10*time.Second, fresh, "root", http.StatusOK).Round(time.Millisecond))
	issuer.must("withdraw", nil)
	if got := b.status(fresh, "root"); got != http.StatusOK {
		t.Errorf("a token of the key that is left: %d", got)
	}
	took := b.until(75*time.Second, admin, "root", http.StatusUnauthorized)
	t.Logf("a token of a key that was withdrawn was refused after %v", took.Round(10*time.Millisecond))

	issuer.Kill()
	if got := b.status(fresh, "root"); got != http.StatusOK {
		t.Errorf("after the issuer has died: %d", got)
	}
	replace(t, file, write(t, "nobody.yaml", authenticationHeader))
	took = b.until(20*time.Second, fresh, "root", http.StatusUnauthorized)
	t.Logf("a token of an issuer that was taken out of the file was refused after %v", took.Round(time.Millisecond))
	r.Signal(syscall.SIGTERM)
	if code := r.Wait(); code != 0 {
		t.Errorf("the replica ended with %d", code)
	}
}

func TestWebhooksSayWhoUsersAreAndWhatTheyMay(t *testing.T) {
	t.Parallel() // most of it is waiting
	hook := startStranger(t)
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	const rights = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- {type: RBAC, name: rbac}\n"
	file := write(t, "authorization.yaml", rights+fmt.Sprintf(`- type: Webhook
  name: hook
  webhook:
    authorizedTTL: 2s
    unauthorizedTTL: 1s
    timeout: 3s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: Deny
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: %q}
    matchConditions: [{expression: "request.user != 'nobody'"}]
`, hook.kubeconfig("/rights")))
	shard.Args = []string{
		"--authentication-token-webhook-config-file=" + hook.kubeconfig("/tokens"), "--authentication-token-webhook-cache-ttl=2s", "--authorization-config=" + file,
	}
	r := shard.Start(t, "a")
	r.WaitRoot()
	b := newBearer(t, filepath.Join(r.Root, "pki", "ca.crt"), r.URL)
	admin := func() int { return r.Status("/clusters/root/api/v1/namespaces") }

	if out, err := b.kubectl("t-ann", "root", "get", "namespaces"); err == nil || !strings.Contains(out, "logged in") {
		t.Errorf("a token that the webhook does not know: %v\n%s", err, out)
	}
	hook.must("known", map[string]any{"t-ann": map[string]any{"username": "ann"}, "t-forger": map[string]any{"username": "system:regent:leader"}})
	b.until(10*time.Second, "t-ann", "root", http.StatusForbidden)
	if got := b.status("t-forger", "root"); got != http.StatusUnauthorized {
		t.Errorf("a webhook that names the server's own user: %d", got)
	}
	r.CreateWorkspace("team")
	team := r.WaitWorkspace("team")
	hook.must("may", []string{"ann " + team})
	b.until(10*time.Second, "t-ann", "root:team", http.StatusOK)
	if out, err := b.kubectl("t-ann", "root:team", "create", "configmap", "mine"); err != nil {
		t.Errorf("kubectl in the cluster that the webhook allows: %v\n%s", err, out)
	}
	for _, cluster := range []string{"root", "system:admin", "*"} {
		if got := b.status("t-ann", cluster); got != http.StatusForbidden {
			t.Errorf("in %s: %d", cluster, got)
		}
	}

	hook.must("may", []string{})
	t.Logf("a right that the webhook withdrew (authorizedTTL 2s) ended after %v", b.until(10*time.Second, "t-ann", "root:team", http.StatusForbidden).Round(time.Millisecond))
	hook.must("may", []string{"ann " + team})
	b.until(10*time.Second, "t-ann", "root:team", http.StatusOK)

	hook.must("hangs", true)
	harness.Eventually(t, "what is remembered has expired", func() bool { return b.status("t-ann", "root:team") != http.StatusOK })
	began := time.Now()
	if got := admin(); got != http.StatusOK || time.Since(began) > 4*time.Second { // a webhook may take 5 s
		t.Errorf("an administrator beside a webhook that hangs: %d after %v", got, time.Since(began))
	}
	hook.must("hangs", false)
	b.until(10*time.Second, "t-ann", "root:team", http.StatusOK)

	if err := os.WriteFile(file, []byte(rights), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Logf("a webhook that was taken out of the file was not asked any more after %v", b.until(10*time.Second, "t-ann", "root:team", http.StatusForbidden).Round(time.Millisecond))
	hook.must("known", map[string]any{})
	t.Logf("a token that the webhook withdrew (TTL 2s) was refused after %v", b.until(10*time.Second, "t-ann", "root:team", http.StatusUnauthorized).Round(time.Millisecond))
	hook.must("hangs", true)
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() { b.status("t-another", "root") })
	r.Signal(syscall.SIGTERM)
	if code := r.Wait(); code != 0 {
		t.Errorf("the replica ended with %d", code)
	}
}

// A front passes tokens on, so that each shard finds out by its own file whose they are.
func TestTokensOfAnIssuerWorkThroughAFront(t *testing.T) {
	t.Parallel() // most of it is waiting
	issuer := startStranger(t)
	i := harness.Install(t, "one")
	flag := "--authentication-config=" + write(t, "authentication.yaml", issuer.issuerFile())
	for _, m := range i.All() {
		m.KillReplicas()
		m.Args = append(m.Args, flag)
		m.Again(t)
	}
	for _, m := range i.All() {
		m.WaitHeard(t, 1)
	}
	if _, err := i.TryRegent("shard", "set", "one", "--label=at=one"); err != nil {
		t.Fatal(err)
	}
	front := i.StartFront()
	openShell(t, i).create("away", "one")
	b := newBearer(t, filepath.Join(i.Root.Replicas[0].Root, "pki", "ca.crt"), front.URL)
	ann, admin := issuer.token("ann", time.Hour, "dev"), issuer.token("bob", time.Hour, "admins")
	for _, cluster := range []string{"root", "root:away"} {
		b.until(20*time.Second, admin, cluster, http.StatusOK)
		if out, err := b.kubectl(ann, cluster, "get", "--raw=/clusters/"+cluster+"/api/v1/namespaces"); err == nil || !strings.Contains(out, "orbidden") || !strings.Contains(out, "oidc:ann") {
			t.Errorf("in %s: %v\n%s", cluster, err, out)
		}
		if got := b.status(ann+"A", cluster); got != http.StatusUnauthorized {
			t.Errorf("a token that was changed, in %s: %d", cluster, got)
		}
	}
	// What the client says of itself does not get through the front, nor count at a shard.
	for name, url := range map[string]string{"front": front.URL, "shard": i.Root.Replicas[0].URL} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/clusters/root/api/v1/namespaces", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+ann)
		req.Header.Set("X-Remote-User", "admin")
		req.Header.Set("X-Remote-Group", "system:masters")
		resp, err := b.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("forged headers at the %s: %d", name, resp.StatusCode)
		}
	}
}
