package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/test/e2e/harness"
)

// letScraperIn lets a user in as docs/ACCESS.md says, by what it has for scraper.yaml.
func letScraperIn(t *testing.T, front *harness.Front, user string) {
	t.Helper()
	var all struct{ Items []json.RawMessage }
	for _, b := range documented(t) {
		if b.heading == "## Let a scraper in" && b.language == "json" {
			if err := json.Unmarshal([]byte(b.text), &all); err != nil {
				t.Fatal(err)
			}
		}
	}
	var role rbacv1.ClusterRole
	var binding rbacv1.ClusterRoleBinding
	if len(all.Items) != 2 {
		t.Fatalf("%d objects are documented", len(all.Items))
	}
	for n, into := range []any{&role, &binding} {
		if err := json.Unmarshal(all.Items[n], into); err != nil {
			t.Fatal(err)
		}
	}
	binding.Subjects[0].Name = user
	config := front.AdminConfig("")
	config.Host = front.URL + "/shards/root/clusters/system:admin"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), &role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), &binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Whoever scrapes shards by a binding scrapes fronts, too, also while the root shard is down.
func TestAScraperReadsTheMetricsOfFronts(t *testing.T) {
	t.Parallel()
	i := harness.Install(t)
	front := i.StartFront()
	client, err := rest.HTTPClientFor(front.Config("root"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	scrape := func(path string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = answer.Body.Close() }()
		content, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(content)
	}
	if code, said := scrape("/metrics"); code != http.StatusForbidden || !strings.Contains(said, "system:admin") {
		t.Errorf("who was let in nowhere gets %d: %.300s", code, said)
	}
	letScraperIn(t, front, harness.Ordinary)
	for path, metric := range map[string]string{"/shards/root/metrics": "regent_election_epoch", "/metrics": "regent_front_shard_heard"} {
		harness.Eventually(t, "the scraper reads "+path, func() bool {
			code, said := scrape(path)
			return code == http.StatusOK && strings.Contains(said, metric)
		})
	}
	i.Root.KillReplicas()
	if code, said := scrape("/metrics"); code != http.StatusOK || !strings.Contains(said, "regent_front_shard_heard") {
		t.Errorf("while the root shard is down the scraper gets %d: %.300s", code, said)
	}
}
