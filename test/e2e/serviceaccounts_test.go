package e2e

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/test/e2e/harness"
)

// A service account logs in by kubectl at any replica, and no longer once it has been deleted.
func TestAServiceAccountLogsInByKubectl(t *testing.T) {
	t.Parallel() // most of it is waiting
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	shard.Timings = harness.Default
	replicas := []*harness.Replica{shard.Start(t, "a"), shard.Start(t, "b")}
	leader, _ := harness.Leader(t, replicas...)
	leader.WaitRoot()
	admin := kubectl{leader, "root:team"}
	if _, err := leader.Dynamic("root").Resource(harness.Workspaces).Create(t.Context(), harness.NewWorkspace("team"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	leader.WaitWorkspace("team")
	mustContain(t, admin.run("auth", "whoami"), "Username", harness.Ordinary)
	harness.Eventually(t, "the namespace has what all have", func() bool {
		_, err := admin.TryKubectl(admin.cluster, "", "get", "serviceaccount/default", "configmap/kube-root-ca.crt")
		return err == nil
	})
	ca := admin.run("get", "configmap", "kube-root-ca.crt", "-o", `jsonpath={.data.ca\.crt}`)

	admin.run("create", "serviceaccount", "bot")
	mustContain(t, admin.run("get", "sa"), "NAME", "SECRETS", "AGE", "bot", "default")
	token := strings.TrimSpace(admin.run("create", "token", "bot", "--duration=20m"))
	var bots []account
	for _, r := range replicas {
		bots = append(bots, newAccount(t, r, "root:team", token, ca))
	}
	for _, bot := range bots { // by whichever replica: at the other one perhaps before its cache shows the account
		bot.refused("system:serviceaccount:default:bot", "get", "--raw="+secretsOfDefault)
	}
	admin.run("create", "clusterrolebinding", "bots-view", "--clusterrole=view", "--serviceaccount=default:bot")
	admin.run("create", "clusterrolebinding", "bots-enter", "--clusterrole=system:kcp:workspace:access", "--serviceaccount=default:bot")
	for _, bot := range bots {
		harness.Eventually(t, "the account may read", func() bool {
			out, err := bot.try("get", "configmap", "kube-root-ca.crt", "-o", "name")
			return err == nil && strings.Contains(out, "configmap/kube-root-ca.crt")
		})
		if out, err := bot.try("auth", "whoami"); err != nil || !strings.Contains(out, "system:serviceaccount:default:bot") || !strings.Contains(out, "authentication.kcp.io/cluster-name") {
			t.Errorf("kubectl auth whoami: %v\n%s", err, out)
		}
	}
	refused := `tokens of service accounts are not kept in Secrets here`
	admin.refused(t, refused, "{apiVersion: v1, kind: Secret, metadata: {name: old, annotations: {kubernetes.io/service-account.name: bot}}, type: kubernetes.io/service-account-token}", "create", "-f", "-")
	admin.refused(t, "may not specify a duration less than 10 minutes", "", "create", "token", "bot", "--duration=1m")
	admin.refused(t, `supported values: "v1 Secret"`, "", "create", "token", "bot", "--bound-object-kind=Pod", "--bound-object-name=p", "--bound-object-uid=u")

	admin.run("create", "secret", "generic", "bond")
	short := strings.TrimSpace(admin.run("create", "token", "bot", "--bound-object-kind=Secret", "--bound-object-name=bond"))
	held := newAccount(t, replicas[1], "root:team", short, ca)
	held.refused("system:serviceaccount:default:bot", "get", "--raw="+secretsOfDefault)
	admin.run("delete", "secret", "bond")
	held.untilNobody("its secret was deleted")
	admin.run("delete", "serviceaccount", "bot")
	for _, bot := range bots {
		bot.untilNobody("its account was deleted")
	}
	admin.run("create", "serviceaccount", "bot")
	for _, bot := range bots {
		bot.refused(unauthorized, "get", "--raw="+secretsOfDefault)
	}
}

// unauthorized is how kubectl says 401.
const unauthorized = "You must be logged in to the server"

// secretsOfDefault is what the accounts here have no right to read.
const secretsOfDefault = "/clusters/root:team/api/v1/namespaces/default/secrets"

// account is a user with a account token and nothing else, in a kubeconfig of its own.
type account struct {
	kubectl
	t    *testing.T
	file string
}

func newAccount(t *testing.T, r *harness.Replica, cluster, token, ca string) account {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: '%s/clusters/%s', certificate-authority-data: %s}}]
users: [{name: u, user: {token: %s}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, r.URL, cluster, base64.StdEncoding.EncodeToString([]byte(ca)), token)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return account{kubectl{r, cluster}, t, file}
}

func (b account) try(args ...string) (string, error) {
	cmd := b.KubectlCommand(b.cluster, args...)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+b.file)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// refused runs kubectl, which must fail and say so.
func (b account) refused(want string, args ...string) {
	b.t.Helper()
	if out, err := b.try(args...); err == nil || !strings.Contains(out, want) {
		b.t.Errorf("kubectl %s: want a failure with %q, got %v:\n%s", strings.Join(args, " "), want, err, out)
	}
}

// untilNobody waits until the token is nobody's.
func (b account) untilNobody(why string) {
	b.t.Helper()
	began := time.Now()
	harness.Eventually(b.t, "nobody has the token after "+why, func() bool {
		out, err := b.try("get", "--raw="+secretsOfDefault)
		return err != nil && strings.Contains(out, unauthorized)
	})
	b.t.Logf("kubectl was told to log in %v after %s", time.Since(began).Round(time.Millisecond), why)
}
