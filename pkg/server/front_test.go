package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/front"
	"github.com/regent-project/regent/pkg/server/pki"
)

// entrance is a front of an installation, in this process.
type entrance struct {
	*installation
	url        string
	admin      *http.Client
	membership *pki.Membership
	file       string // with the membership
	snapshot   string
	stop       func()
}

// open starts a new front, and returns when it finds root.
func (i *installation) open(name string) *entrance {
	i.Helper()
	root := i.shards["root"]
	membership, err := root.at.server.keys.Bundle().NewMembership(pki.Member{Kind: pki.KindFront, Name: name}, pki.RootShard{Name: "root", URLs: []string{root.at.url}})
	if err != nil {
		i.Fatal(err)
	}
	authority, err := membership.Authority()
	if err != nil {
		i.Fatal(err)
	}
	i.until("root", "the front is a member", func() bool { // the leader may not have listed its shard yet
		_, err := root.at.shard.Clients.Shards.Patch(in(root, "root"), "root", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+clusters.FrontAnnotationPrefix+name+`":"`+authority.Fingerprint()+`"}}}`), metav1.PatchOptions{})
		return err == nil
	})
	e := i.enter(membership, filepath.Join(i.TempDir(), "snapshot"))
	i.until("root", "the front is ready and finds root", func() bool {
		ready, _ := e.ask(e.admin, "/readyz")
		found, _ := e.ask(e.admin, "/clusters/root/api/v1/namespaces")
		return ready == http.StatusOK && found == http.StatusOK
	})
	return e
}

// enter starts a front.
func (i *installation) enter(membership *pki.Membership, snapshot string, changes ...func(*front.Config)) *entrance {
	i.Helper()
	root := i.shards["root"]
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		i.Fatal(err)
	}
	file := filepath.Join(i.TempDir(), "front.yaml")
	keepMembership(i.T, file, membership)
	cfg := front.Config{
		Membership: membership, MembershipFile: file, Listener: listener, Addresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ShutdownTimeout: 10 * time.Second,
		SnapshotFile: snapshot, SnapshotAge: time.Hour, Limits: front.DefaultLimits(), AccessLog: true,
	}
	for _, change := range changes {
		change(&cfg)
	}
	f, err := front.New(cfg)
	if err != nil {
		i.Fatal(err)
	}
	ctx, cancel := context.WithCancel(i.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	e := &entrance{installation: i, url: "https://" + listener.Addr().String(), membership: membership, file: file, snapshot: snapshot}
	e.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			i.Errorf("the front ended with %v", err)
		}
	})
	i.Cleanup(e.stop)
	config := root.at.adminConfig(i, "")
	config.Host = e.url
	if e.admin, err = rest.HTTPClientFor(config); err != nil {
		i.Fatal(err)
	}
	i.Cleanup(e.admin.CloseIdleConnections)
	return e
}

// ask sends a GET.
func (e *entrance) ask(client *http.Client, path string, headers ...string) (status int, body string) {
	e.Helper()
	req, err := http.NewRequestWithContext(e.Context(), http.MethodGet, e.url+path, nil)
	if err != nil {
		e.Fatal(err)
	}
	for n := 0; n < len(headers); n += 2 {
		req.Header.Add(headers[n], headers[n+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		e.Fatal(err)
	}
	return resp.StatusCode, string(content)
}

// watch begins to watch the ConfigMaps of a cluster, until the test ends.
func (e *entrance) watch(cluster string) *http.Response {
	e.Helper()
	resp, err := e.admin.Get(e.url + "/clusters/" + cluster + "/api/v1/configmaps?watch=1") //nolint:bodyclose // in the end
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// warning returns the warning in the answer to a GET.
func (e *entrance) warning(path string) string {
	e.Helper()
	resp, err := e.admin.Get(e.url + path)
	if err != nil {
		e.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.Header.Get("Warning")
}

func TestAFrontLeadsToEveryClusterAndSaysWhatItDoesNotKnow(t *testing.T) {
	i := install(t, "eu1")
	e := i.open("f")
	i.cordon("root")
	root := i.shards["root"]

	// Through the front: a workspace, and what is in its cluster, from the moment that it is Ready.
	config := root.at.adminConfig(t, "")
	config.Host = e.url
	config.Wrap(clusters.Transport)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	clients, err := controllers.NewClients(&rest.Config{Host: e.url, QPS: -1}, client)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		must(clients.Workspaces.Create(in(root, "root"), &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(root)
		root.ready(name)
		for _, path := range []string{root.get(name).Spec.Cluster, "root:" + name} {
			if status, body := e.ask(e.admin, "/clusters/"+path+"/api/v1/namespaces"); status != http.StatusOK {
				t.Errorf("%s is Ready, and the front answers %d at %s: %s", name, status, path, body)
			}
		}
	}
	cluster := root.get("a").Spec.Cluster

	stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: root.at.client.Transport.(*http.Transport).TLSClientConfig.RootCAs}}}
	defer stranger.CloseIdleConnections()
	shard := i.callAs("eu1")
	var bot string // a service account's token, of a cluster of eu1
	on := i.shards["eu1"]
	i.until("eu1", "the cluster has its service account", func() bool {
		token, err := on.at.shard.Clients.Kube.CoreV1().ServiceAccounts("default").CreateToken(in(on, cluster), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err == nil {
			bot = token.Status.Token
		}
		return err == nil
	})
	i.until("root", "it knows the accounts of eu1", func() bool {
		status, _ := e.ask(stranger, "/clusters/root/api/v1/namespaces", "Authorization", "Bearer "+bot)
		return status != http.StatusUnauthorized
	})
	for name, tc := range map[string]struct {
		client  *http.Client
		path    string
		headers []string
		want    int
		says    string
	}{
		"by name":                        {e.admin, "/clusters/" + cluster + "/api/v1/namespaces", nil, 200, ""},
		"one shard's system cluster":     {e.admin, "/shards/eu1/clusters/system:admin/api/v1/namespaces", nil, 200, ""},
		"all clusters of one shard":      {e.admin, "/shards/eu1/clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters", nil, 200, ""},
		"all clusters of all":            {e.admin, "/clusters/*/api/v1/namespaces", nil, 400, "/shards/<name>/clusters/*"},
		"a system cluster of none":       {e.admin, "/clusters/system:admin/api/v1/namespaces", nil, 400, "/shards/<name>/clusters/system:admin"},
		"no shard":                       {e.admin, "/shards/us1/clusters/root/api", nil, 404, "us1"},
		"no workspace":                   {e.admin, "/clusters/root:nowhere/api/v1/namespaces", nil, 404, "root:nowhere"},
		"no workspace on the other":      {e.admin, "/clusters/root:a:nowhere/api/v1/namespaces", nil, 404, "root:a:nowhere"},
		"no cluster":                     {e.admin, "/clusters/nowhere0000000000/api/v1/namespaces", nil, 404, "not found"},
		"no path":                        {e.admin, "/clusters/root/../x", nil, 400, ""},
		"no cluster named":               {e.admin, "/api/v1/namespaces", nil, 404, "/clusters/<path or name>"},
		"a stranger":                     {stranger, "/clusters/root/api/v1/namespaces", nil, 401, ""},
		"a stranger who forges":          {stranger, "/clusters/root/api/v1/namespaces", []string{"X-Remote-User", "admin", "X-Remote-Group", "system:masters"}, 401, ""},
		"a stranger, what is not there":  {stranger, "/clusters/root:nowhere/api", nil, 401, ""},
		"a token that nobody knows":      {stranger, "/clusters/root/api/v1/namespaces", []string{"Authorization", "Bearer x"}, 401, ""},
		"a token, and what is not there": {stranger, "/clusters/root:nowhere/api/v1/namespaces", []string{"Authorization", "Bearer x"}, 401, ""},
		"a service account":              {stranger, "/clusters/" + cluster + "/api/v1/namespaces", []string{"Authorization", "Bearer " + bot}, 403, "system:serviceaccount:default:default"},
		"a service account, elsewhere":   {stranger, "/clusters/root/api/v1/namespaces", []string{"Authorization", "Bearer " + bot}, 403, "system:serviceaccount:default:default"},
		"an encoded way out":             {e.admin, "/shards/eu1/clusters/root%2f..%2fx/api", nil, 400, ""},
		"an administrator who forges":    {e.admin, "/clusters/root/api/v1/namespaces", []string{"X-Remote-User", "nobody"}, 200, ""},
		"a shard":                        {shard, "/clusters/root/api/v1/namespaces", nil, 401, "not through a front"},
		"the front's own endpoints":      {stranger, "/livez", nil, 200, "ok"},
		"the front's metrics":            {e.admin, "/metrics", nil, 200, `regent_front_shard_heard{shard="eu1"} 1`},
		"its metrics, with a token":      {stranger, "/metrics", []string{"Authorization", "Bearer x"}, 401, "does not know the token"},
		"how the installation is doing":  {e.admin, "/regent/v1/installation", nil, 200, `"name":"eu1"`},
		"how it is doing, to a stranger": {stranger, "/regent/v1/installation", nil, 401, ""},
		"how it is doing, to a token":    {stranger, "/regent/v1/installation", []string{"Authorization", "Bearer " + bot}, 403, "system:serviceaccount:default:default"},
		"out of how it is doing":         {e.admin, "/regent/v1/../../metrics", nil, 400, ""},
		"metrics of a shard":             {e.admin, "/shards/eu1/metrics", nil, 200, "leader_election_master_status"},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := e.ask(tc.client, tc.path, tc.headers...)
			if status != tc.want || !strings.Contains(body, tc.says) {
				t.Errorf("%d %s; want %d with %q", status, body, tc.want, tc.says)
			}
		})
	}

	// kubectl does not read what refuses its discovery. It shows warnings.
	for path, want := range map[string]string{
		"/clusters/root:nowhere/api":      `logical cluster \"root:nowhere\" not found`,
		"/api":                            "the request names no logical cluster",
		"/shards/us1/clusters/root/apis":  `there is no shard \"us1\"`,
		"/clusters/root/apis":             "",
		"/clusters/root:nowhere/api/v1/x": "",
	} {
		if warning := e.warning(path); !strings.Contains(warning, want) || want == "" && warning != "" {
			t.Errorf("%s: warning %q, want %q", path, warning, want)
		}
	}

	// A watch streams.
	resp := e.watch("root:a")
	eu1 := i.shards["eu1"]
	must(eu1.at.shard.Clients.Kube.CoreV1().Namespaces().Create(in(eu1, cluster), namespaceNamed("n"), metav1.CreateOptions{}))(eu1)
	must(eu1.at.shard.Clients.Kube.CoreV1().ConfigMaps("n").Create(in(eu1, cluster), configMapNamed("watched"), metav1.CreateOptions{}))(eu1)
	for events, line := bufio.NewReader(resp.Body), ""; !strings.Contains(line, `"watched"`); {
		if line, err = events.ReadString('\n'); err != nil {
			t.Fatalf("the watch does not tell of a new object: %v", err)
		}
	}

	for _, want := range []string{`regent_front_index_clusters{shard="eu1"} 3`, `regent_front_index_age_seconds{shard="eu1"} 0`,
		`regent_front_requests_inflight{kind="watches"} 1`, `regent_front_requests_total{code="404",shard="-"}`, `regent_front_added_seconds_count{shard="eu1"}`} {
		if _, body := e.ask(e.admin, "/metrics"); !strings.Contains(body, want) {
			t.Errorf("its metrics do not say %s", want)
		}
	}

	// The shard is down: its watches end, its clusters are unavailable, and it is named. All others are as they
	// were.
	if err := eu1.at.stop(t); err != nil {
		t.Fatal(err)
	}
	if status, body := e.ask(e.admin, "/clusters/root:a/api/v1/namespaces"); status != http.StatusServiceUnavailable || !strings.Contains(body, "eu1") {
		t.Errorf("a cluster of a shard that is down: %d %s", status, body)
	}
	if warning := e.warning("/clusters/root:a/apis"); !strings.Contains(warning, "shard eu1 does not answer") {
		t.Errorf("kubectl is told %q", warning)
	}
	if rest, err := io.ReadAll(resp.Body); err != nil {
		t.Errorf("the watch ends with %q, %v", rest, err)
	}
	for path, want := range map[string]int{"root": http.StatusOK, "root:nowhere": http.StatusNotFound} {
		if status, body := e.ask(e.admin, "/clusters/"+path+"/api/v1/namespaces"); status != want {
			t.Errorf("%s, while eu1 is down: %d %s", path, status, body)
		}
	}
	i.until("root", "an unknown name may be on the shard that is down", func() bool {
		status, body := e.ask(e.admin, "/clusters/nowhere0000000000/api")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "eu1")
	})
	i.again("eu1")
	i.until("root", "its clusters are back", func() bool {
		status, _ := e.ask(e.admin, "/clusters/root:a/api/v1/namespaces")
		return status == http.StatusOK
	})
}

// A front that is asked to stop ends watches as the server would, finishes requests, and tells load balancers before
// that.
func TestAFrontStopsWithoutAnErrorForItsClients(t *testing.T) {
	t.Parallel() // most of it is waiting
	i := install(t)
	e := i.open("f")
	e.stop()
	// also for a busy machine
	e = i.enter(e.membership, e.snapshot, func(cfg *front.Config) { cfg.ShutdownDelay = 5 * time.Second })
	i.until("root", "the front is ready", func() bool {
		status, _ := e.ask(e.admin, "/readyz")
		return status == http.StatusOK
	})
	resp := e.watch("root")
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		e.stop()
	}()
	i.until("root", "the front says that it stops", func() bool {
		status, body := e.ask(e.admin, "/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "stops")
	})
	if status, body := e.ask(e.admin, "/clusters/root/api/v1/namespaces"); status != http.StatusOK {
		t.Errorf("it refuses requests already: %d %s", status, body)
	}
	if rest, err := io.ReadAll(resp.Body); err != nil {
		t.Errorf("the watch ends with %q, %v", rest, err)
	}
	<-stopped
}

// A front that was removed tells load balancers, as soon as the root shard has told it.
func TestAFrontThatIsRemovedIsNotReady(t *testing.T) {
	t.Parallel() // most of it is waiting
	i := install(t)
	e := i.open("f")
	root := i.shards["root"]
	must(root.at.shard.Clients.Shards.Patch(in(root, "root"), "root", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+clusters.FrontAnnotationPrefix+`f":null}}}`), metav1.PatchOptions{}))(root)
	i.until("root", "the front says that it was removed", func() bool {
		status, body := e.ask(e.admin, "/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "no member")
	})
	i.until("root", "its requests are refused", func() bool {
		status, body := e.ask(e.admin, "/clusters/root/api/v1/namespaces")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "does not accept this front")
	})
}

func TestAFrontRefusesAClientThatAsksTooMuch(t *testing.T) {
	t.Parallel() // most of it is waiting
	i := install(t)
	e := i.open("f")
	e.stop()
	e = i.enter(e.membership, e.snapshot, func(cfg *front.Config) { cfg.Limits = front.Limits{WatchesPerClient: 1} })
	i.until("root", "the front is ready", func() bool {
		status, _ := e.ask(e.admin, "/readyz")
		return status == http.StatusOK
	})
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		resp := e.watch("root")
		if resp.StatusCode != want || want == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != "1" {
			t.Errorf("%d, retry after %q; want %d", resp.StatusCode, resp.Header.Get("Retry-After"), want)
		}
	}
	if status, body := e.ask(e.admin, "/clusters/root/api/v1/configmaps"); status != http.StatusOK {
		t.Errorf("a list beside it: %d %s", status, body)
	}
	// However many tokens somebody has.
	root := i.shards["root"]
	kube := root.at.shard.Clients.Kube
	must(kube.RbacV1().ClusterRoleBindings().Create(in(root, "root"), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bots"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts"}},
	}, metav1.CreateOptions{}))(root)
	stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: root.at.client.Transport.(*http.Transport).TLSClientConfig.RootCAs}}}
	defer stranger.CloseIdleConnections()
	for n, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		seconds := int64(3600 + n) // another token
		var token *authenticationv1.TokenRequest
		i.until("root", "root has its service account", func() (has bool) {
			var err error
			token, err = kube.CoreV1().ServiceAccounts("default").CreateToken(in(root, "root"), "default", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
			return err == nil
		})
		bearer := []string{"Authorization", "Bearer " + token.Status.Token}
		i.until("root", "the account may list", func() bool {
			status, _ := e.ask(stranger, "/clusters/root/api/v1/configmaps", bearer...)
			return status == http.StatusOK
		})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.url+"/clusters/root/api/v1/configmaps?watch=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(bearer[0], bearer[1])
		resp, err := stranger.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != want || resp.Header.Get(clusters.CountedAsHeader) != "" {
			t.Errorf("a watch with token %d: %d, header %v; want %d", n, resp.StatusCode, resp.Header, want)
		}
	}
}

func namespaceNamed(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func configMapNamed(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// I11: the front was restarted while the root shard is down.
func TestAFrontBeginsWithWhatItKnewI11(t *testing.T) {
	t.Parallel() // most of it is waiting
	i := install(t, "eu1")
	e := i.open("f")
	i.cordon("root")
	root := i.shards["root"]
	root.create("a", "gone")
	cluster := root.ready("a")
	root.ready("gone")
	i.until("root", "the front finds both", func() bool {
		a, _ := e.ask(e.admin, "/clusters/root:a/api/v1/namespaces")
		gone, _ := e.ask(e.admin, "/clusters/root:gone/api/v1/namespaces")
		return a == http.StatusOK && gone == http.StatusOK
	})
	e.stop()
	root.delete("gone")
	if err := root.at.stop(t); err != nil {
		t.Fatal(err)
	}

	e = i.enter(e.membership, e.snapshot)
	i.until("eu1", "the front is ready, and has heard eu1", func() bool {
		status, _ := e.ask(e.admin, "/readyz")
		gone, _ := e.ask(e.admin, "/clusters/root:gone/api/v1/namespaces")
		// the root shard may know more of it
		return status == http.StatusOK && gone == http.StatusServiceUnavailable
	})
	for _, path := range []string{"root:a", cluster} {
		if status, body := e.ask(e.admin, "/clusters/"+path+"/api/v1/namespaces"); status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, body := e.ask(e.admin, "/clusters/root/api/v1/namespaces"); status != http.StatusServiceUnavailable || !strings.Contains(body, "shard root") {
		t.Errorf("root: %d %s", status, body)
	}
	i.again("root")
	i.until("eu1", "root is back", func() bool {
		status, _ := e.ask(e.admin, "/clusters/root/api/v1/namespaces")
		gone, _ := e.ask(e.admin, "/clusters/root:gone/api/v1/namespaces")
		return status == http.StatusOK && gone == http.StatusNotFound
	})
}
