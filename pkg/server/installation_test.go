package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/identity"
	administration "github.com/regent-project/regent/pkg/server/installation"
	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/test/etcdtest"
)

// installation is several shards in this process, of one replica each, with an etcd prefix for each.
type installation struct {
	*testing.T
	etcd   storagebackend.TransportConfig
	shards map[string]*operator
	cfgs   map[string]Config
	// prepare is done to each server before it runs.
	prepare []func(*Server)
}

// install starts shard root, and further shards that join it.
func install(t *testing.T, others ...string) *installation {
	t.Helper()
	return installPrepared(t, nil, others...)
}

func installPrepared(t *testing.T, prepare []func(*Server), others ...string) *installation {
	t.Helper()
	i := &installation{T: t, etcd: etcdtest.Start(t), shards: map[string]*operator{}, cfgs: map[string]Config{}, prepare: prepare}
	i.cfgs["root"] = i.config("root")
	i.start("root")
	root := i.shards["root"]
	root.until("root is Ready", root.rootIsReady)
	bundle, err := pki.Ensure(filepath.Join(i.cfgs["root"].RootDirectory, pkiDirectory))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range others {
		cfg := i.config(name)
		cfg.Membership, err = bundle.NewMembership(pki.Member{Kind: pki.KindShard, Name: name}, pki.RootShard{Name: "root", URLs: []string{root.at.url}})
		if err != nil {
			t.Fatal(err)
		}
		cfg.MembershipFile = filepath.Join(t.TempDir(), name+".yaml")
		keepMembership(t, cfg.MembershipFile, cfg.Membership)
		authority, err := cfg.Membership.Authority()
		if err != nil {
			t.Fatal(err)
		}
		shard := &corev1alpha1.Shard{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"region": name}, Annotations: map[string]string{clusters.AuthorityAnnotation: authority.Fingerprint()}},
			Spec:       corev1alpha1.ShardSpec{BaseURL: cfg.BaseURL},
		}
		must(root.at.shard.Clients.Shards.Create(in(root, "root"), shard, metav1.CreateOptions{}))(root)
		i.cfgs[name] = cfg
		i.start(name)
	}
	for _, own := range append(others, "root") {
		for _, other := range append(others, "root") {
			i.until(own, own+" hears "+other, func() bool { return own == other || i.shards[own].at.shard.Shards.Contact.Hears(other) })
		}
	}
	return i
}

func (i *installation) config(name string) Config {
	cfg := withController(i.T, config(i.T, i.TempDir()), nil)
	cfg.Shard, cfg.EmbeddedEtcd, cfg.Etcd, cfg.EtcdPrefix = name, nil, i.etcd, "/of-"+name
	return cfg
}

func (i *installation) start(name string) {
	i.Helper()
	at := catalogue(i.T, i.cfgs[name], i.prepare...)
	at.root = i.cfgs["root"].RootDirectory // the installation's administrators are those of each shard
	i.shards[name] = &operator{i.T, at}
}

// again starts a shard that was stopped, at its old address.
func (i *installation) again(name string) {
	i.Helper()
	cfg, before := i.config(name), i.cfgs[name]
	_ = cfg.Serving.Listener.Close()
	var err error
	if cfg.Serving.Listener, err = net.Listen("tcp", strings.TrimPrefix(before.BaseURL, "https://")); err != nil {
		i.Fatal(err)
	}
	cfg.Membership, cfg.MembershipFile, cfg.RootDirectory, cfg.BaseURL = before.Membership, before.MembershipFile, before.RootDirectory, before.BaseURL
	i.cfgs[name] = cfg
	i.start(name)
}

func (i *installation) until(shard, what string, so func() bool) {
	i.Helper()
	i.shards[shard].until(what, so)
}

// cordon makes a shard take no new clusters.
func (i *installation) cordon(name string) {
	i.Helper()
	root := i.shards["root"]
	i.until("root", name+" is cordoned", func() bool { // its leader may not have listed itself yet
		_, err := root.at.shard.Clients.Shards.Patch(in(root, "root"), name, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+clusters.CordonAnnotation+`":"true"}}}`), metav1.PatchOptions{})
		return err == nil
	})
	for own := range i.shards {
		i.until(own, own+" knows that "+name+" is cordoned", func() bool {
			shard, ok := i.shards[own].at.shard.Informers.Shards.Get(clusters.Key{Cluster: clusters.SystemShards, Name: name})
			return ok && clusters.IsCordoned(shard)
		})
	}
}

// cluster returns the LogicalCluster that a shard has of a workspace, or nil.
func (i *installation) cluster(shard string, ws *tenancyv1alpha1.Workspace) *corev1alpha1.LogicalCluster {
	i.Helper()
	u := i.shards[shard]
	lc, err := u.at.shard.Clients.LogicalClusters.Get(in(u, ws.Spec.Cluster), "cluster", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		i.Fatal(err)
	}
	return lc
}

func TestAWorkspacesClusterMayBeOnAnotherShard(t *testing.T) {
	t.Parallel() // most of it is waiting
	i := install(t, "eu1")
	i.cordon("root")
	root, eu1 := i.shards["root"], i.shards["eu1"]
	root.create("a")
	cluster := root.ready("a")
	ws := root.get("a")
	if got := ws.Labels[clusters.ShardLabel]; got != "eu1" {
		t.Fatalf("it is on shard %q", got)
	}
	if scheduled := conditions.Get(ws, tenancyv1alpha1.WorkspaceScheduled); scheduled == nil || !strings.Contains(scheduled.Message, "1 cordoned") {
		t.Errorf("condition %+v", scheduled)
	}
	lc := i.cluster("eu1", ws)
	if lc == nil || lc.Labels[clusters.OwnerShardLabel] != "root" || lc.Annotations["kcp.io/path"] != "root:a" {
		t.Fatalf("eu1 has %+v", lc)
	}
	if i.cluster("root", ws) != nil {
		t.Error("the root shard has the cluster, too")
	}
	admin := func(u *operator, path string) int {
		t.Helper()
		status := 0
		u.at.adminIn(t, "").CoreV1().RESTClient().Get().AbsPath("/clusters/" + path + "/api/v1/namespaces").Do(t.Context()).StatusCode(&status)
		return status
	}
	for path, want := range map[string][2]int{
		"root:a": {http.StatusMisdirectedRequest, http.StatusOK}, cluster: {http.StatusNotFound, http.StatusOK}, "root:b": {http.StatusNotFound, http.StatusMisdirectedRequest},
	} {
		if got := [2]int{admin(root, path), admin(eu1, path)}; got != want {
			t.Errorf("%s: %v at root and at eu1, want %v", path, got, want)
		}
	}

	// Workspaces nest, and go with what is around them.
	within := in(eu1, cluster)
	must(eu1.at.shard.Clients.Workspaces.Create(within, &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "inner"}}, metav1.CreateOptions{}))(eu1)
	var inner *tenancyv1alpha1.Workspace
	i.until("eu1", "the inner one is Ready", func() bool {
		inner = must(eu1.at.shard.Clients.Workspaces.Get(within, "inner", metav1.GetOptions{}))(eu1)
		return inner.Status.Phase == corev1alpha1.LogicalClusterPhaseReady
	})
	if got := admin(eu1, "root:a:inner"); got != http.StatusOK {
		t.Errorf("root:a:inner: %d", got)
	}
	root.delete("a")
	for _, gone := range []*tenancyv1alpha1.Workspace{ws, inner} {
		if i.cluster("eu1", gone) != nil {
			t.Errorf("the cluster of %s is left", gone.Name)
		}
	}
}

func TestAClusterThatIsDeletedOnItsShardTakesItsWorkspaceAlong(t *testing.T) {
	t.Parallel() // most of it is waiting
	i := install(t, "eu1")
	i.cordon("root")
	root, eu1 := i.shards["root"], i.shards["eu1"]
	root.create("a")
	cluster := root.ready("a")
	must(0, eu1.at.shard.Clients.LogicalClusters.Delete(in(eu1, cluster), "cluster", metav1.DeleteOptions{}))(eu1)
	i.until("root", "the workspace has gone", func() bool {
		_, err := root.at.shard.Clients.Workspaces.Get(in(root, "root"), "a", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func TestWhatWaitsForAShardGoesOnWhenThatIsBack(t *testing.T) {
	t.Parallel() // most of it is waiting
	i := install(t, "eu1")
	i.cordon("root")
	root := i.shards["root"]
	root.create("old")
	root.ready("old")
	if err := i.shards["eu1"].at.stop(t); err != nil {
		t.Fatal(err)
	}
	i.until("root", "root does not hear eu1", func() bool { return !root.at.shard.Shards.Contact.Hears("eu1") })
	i.mustBeUnreachable("old", "eu1")
	root.create("new")
	i.until("root", "the new one says what it waits for", func() bool {
		scheduled := conditions.Get(root.get("new"), tenancyv1alpha1.WorkspaceScheduled)
		return scheduled != nil && strings.Contains(scheduled.Message, "1 not heard")
	})
	must(0, root.at.shard.Clients.Workspaces.Delete(in(root, "root"), "old", metav1.DeleteOptions{}))(root)
	i.until("root", "the old one says what it waits for", func() bool {
		deleted := conditions.Get(root.get("old"), tenancyv1alpha1.WorkspaceContentDeleted)
		return deleted != nil && strings.Contains(deleted.Message, "eu1, which has the logical cluster, is not heard")
	})
	i.again("eu1")
	root.ready("new")
	i.until("root", "the old one has gone", func() bool {
		_, err := root.at.shard.Clients.Workspaces.Get(in(root, "root"), "old", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// mustBeUnreachable checks that people are told that a workspace of the root shard is on a shard that is down. The API
// says what that has said last.
func (i *installation) mustBeUnreachable(name, home string) {
	i.Helper()
	root := i.shards["root"]
	if phase := root.get(name).Status.Phase; phase != corev1alpha1.LogicalClusterPhaseReady {
		i.Errorf("the API says %s", phase)
	}
	table, err := root.at.replica.admin(i.T).Get().AbsPath("/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/"+name).
		SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").Do(i.Context()).Raw()
	if err != nil || !strings.Contains(string(table), fmt.Sprintf(`"cells":["%s","universal","%s","Unreachable",`, name, home)) {
		i.Errorf("the table is %s, %v", table, err)
	}
	found := status.Workspaces{}
	untilAnswered(i.T, root.at.replica, status.WorkspacesPath+"?search=root:"+name, "the workspace is found", func(all status.Workspaces) bool {
		found = all
		return len(all.Items) == 1
	})
	if got := found.Items[0]; got.Home != home || !got.Unreachable || got.Shard != "root" || got.Phase != "Ready" {
		i.Errorf("a search finds %+v", got)
	}
}

// I10: the shard of the Workspaces was restored from a backup. It does not know its youngest ones any more.
func TestAClusterOutlivesItsWorkspaceThatNobodyHasDeletedI10(t *testing.T) {
	t.Parallel() // most of it is waiting
	i := install(t, "eu1")
	i.cordon("root")
	root := i.shards["root"]
	root.create("young", "old")
	young, old := root.ready("young"), root.ready("old")
	lost := root.get("young")
	if err := root.at.stop(t); err != nil {
		t.Fatal(err)
	}
	key := "/of-root/tenancy.kcp.io/workspaces/root/young"
	client := etcdtest.Client(t, i.etcd)
	stored, err := client.Get(t.Context(), key)
	if err != nil || stored.Count != 1 {
		t.Fatalf("%d of %s (%v)", stored.Count, key, err)
	}
	if _, err := client.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	i.again("root")
	orphaned := func(cluster string) bool {
		eu1 := i.shards["eu1"]
		lc := must(eu1.at.shard.Clients.LogicalClusters.Get(in(eu1, cluster), "cluster", metav1.GetOptions{}))(eu1)
		if lc.DeletionTimestamp != nil {
			t.Fatalf("cluster %s is being deleted", cluster)
		}
		return conditions.IsTrue(lc, clusters.ConditionOrphaned)
	}
	i.until("eu1", "the cluster says that it is orphaned", func() bool { return orphaned(young) })
	if orphaned(old) {
		t.Error("so does one that is not")
	}
	// The backup's owner finds the Workspace after all.
	if _, err := client.Put(t.Context(), key, string(stored.Kvs[0].Value)); err != nil {
		t.Fatal(err)
	}
	i.until("eu1", "the cluster is an orphan no longer", func() bool { return !orphaned(young) })
	if i.cluster("eu1", lost) == nil {
		t.Error("the cluster has gone")
	}
}

// I10: what a restore has left is decided by an administrator, and nobody else.
func TestAnOrphanIsAdoptedOrDeletedByAnAdministratorI10(t *testing.T) {
	t.Parallel() // most of it is waiting
	i := install(t, "eu1")
	i.cordon("root")
	root, eu1 := i.shards["root"], i.shards["eu1"]
	names := []string{"adopted", "deleted", "replaced"}
	root.create(names...)
	lost := map[string]string{} // clusters by the name of their Workspace
	for _, name := range names {
		lost[name] = root.ready(name)
	}
	must(eu1.at.shard.Clients.Kube.CoreV1().ConfigMaps("default").Create(in(eu1, lost["adopted"]), configMapNamed("kept"), metav1.CreateOptions{}))(eu1)
	if err := root.at.stop(t); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if resp, err := etcdtest.Client(t, i.etcd).Delete(t.Context(), "/of-root/tenancy.kcp.io/workspaces/root/"+name); err != nil || resp.Deleted != 1 {
			t.Fatalf("%d of %s (%v)", resp.Deleted, name, err)
		}
	}
	i.again("root")
	root = i.shards["root"]
	admin, err := administration.New(root.at.adminConfig(t, "root"))
	if err != nil {
		t.Fatal(err)
	}
	i.until("eu1", "all are listed as orphans", func() bool {
		orphans, err := admin.Orphans(t.Context())
		return err == nil && len(orphans) == len(names)
	})
	refused := func(err error, says string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error with %q", err, says)
		}
	}

	// Adopted: the same cluster, with what is in it.
	if _, err := admin.Adopt(t.Context(), lost["adopted"], ""); err != nil {
		t.Fatal(err)
	}
	if got := root.ready("adopted"); got != lost["adopted"] {
		t.Errorf("the Workspace has cluster %s, and not %s", got, lost["adopted"])
	}
	must(eu1.at.shard.Clients.Kube.CoreV1().ConfigMaps("default").Get(in(eu1, lost["adopted"]), "kept", metav1.GetOptions{}))(eu1)
	i.until("eu1", "its path leads to it", func() bool {
		status := 0
		eu1.at.adminIn(t, "").CoreV1().RESTClient().Get().AbsPath("/clusters/root:adopted/api/v1/namespaces").Do(t.Context()).StatusCode(&status)
		return status == http.StatusOK
	})
	_, err = admin.Adopt(t.Context(), lost["adopted"], "")
	refused(err, "is no orphan")
	_, err = admin.DeleteOrphan(t.Context(), lost["adopted"], "")
	refused(err, "is no orphan")

	// Deleted: its shard empties it.
	if _, err := admin.DeleteOrphan(t.Context(), lost["deleted"], "eu1"); err != nil {
		t.Fatal(err)
	}
	gone := func(cluster string) func() bool {
		return func() bool {
			return i.cluster("eu1", &tenancyv1alpha1.Workspace{Spec: tenancyv1alpha1.WorkspaceSpec{Cluster: cluster}}) == nil
		}
	}
	i.until("eu1", "the deleted one has gone", gone(lost["deleted"]))

	// Its name is another's now.
	root.create("replaced")
	now := root.ready("replaced")
	_, err = admin.Adopt(t.Context(), lost["replaced"], "")
	refused(err, "there is another Workspace root|replaced")
	if _, err := admin.DeleteOrphan(t.Context(), lost["replaced"], ""); err != nil {
		t.Fatal(err)
	}
	i.until("eu1", "the replaced one has gone", gone(lost["replaced"]))
	if gone(now)() {
		t.Error("the one in its place has gone, too")
	}

	events := must(eu1.at.shard.Clients.Kube.CoreV1().Events("default").List(in(eu1, "system:admin"), metav1.ListOptions{}))(eu1)
	for name, cluster := range lost {
		told := 0
		for _, e := range events.Items {
			if e.Reason == "Orphaned" && e.Type == "Warning" && strings.Contains(e.Message, cluster) && strings.Contains(e.Message, "root|"+name) {
				told++
			}
		}
		if told != 1 {
			t.Errorf("%d Events tell that %s is an orphan", told, name)
		}
	}
	root.delete("adopted") // whoever is adopted goes with its new Workspace
	if !gone(lost["adopted"])() {
		t.Error("the adopted cluster is left")
	}
}

// callAs returns a client with a certificate of a shard's authority.
func (i *installation) callAs(shard string) *http.Client {
	i.Helper()
	return i.callWith(authorityOf(i.shards[shard].at.server.keys))
}

// callWith returns a client with a certificate of a member's authority.
func (i *installation) callWith(authority *pki.Authority) *http.Client {
	i.Helper()
	certPEM, keyPEM, err := authority.Call(time.Hour)
	if err != nil {
		i.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		i.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(i.shards["root"].at.server.keys.Bundle().CAPEM)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}, ForceAttemptHTTP2: true}
	i.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// I9: whatever a shard tries at another one, it can only read what it needs.
func TestNoShardWritesToAnotherOneI9(t *testing.T) {
	i := install(t, "eu1")
	root := i.shards["root"]
	root.create("a")
	cluster := root.ready("a")
	for _, way := range [][2]string{{"root", "eu1"}, {"eu1", "root"}} {
		t.Run(way[0]+" at "+way[1], func(t *testing.T) {
			client, at := i.callAs(way[0]), i.shards[way[1]].at
			ask := func(method, path string, headers ...string) int {
				t.Helper()
				code, _, _ := browse(t, client, method, at.url+path, "{}", headers...)
				return code
			}
			read := 0
			// every shard has that cluster
			_, lists, err := at.adminIn(t, clusters.SystemAdmin).Discovery().ServerGroupsAndResources()
			if err != nil {
				t.Fatal(err)
			}
			for _, list := range lists {
				prefix := "/apis/" + list.GroupVersion
				if !strings.Contains(list.GroupVersion, "/") {
					prefix = "/api/" + list.GroupVersion
				}
				for _, resource := range list.APIResources {
					name, subresource, _ := strings.Cut(resource.Name, "/")
					namespace := ""
					if resource.Namespaced {
						namespace = "/namespaces/default"
					}
					for _, in := range []string{"root", "system:admin", "system:shards", cluster, "nowhere0000000000"} {
						collection := "/clusters/" + in + prefix + namespace + "/" + name
						object := collection + "/cluster"
						if subresource != "" {
							object += "/" + subresource
						}
						for _, write := range [][2]string{
							{http.MethodPost, collection}, {http.MethodPut, object}, {http.MethodPatch, object}, {http.MethodDelete, object}, {http.MethodDelete, collection},
							{http.MethodPost, object},
						} {
							if got := ask(write[0], write[1]); got != http.StatusForbidden {
								t.Errorf("%s %s: %d, want 403", write[0], write[1], got)
							}
						}
						_, mayRead := identity.Readable[name]
						got := ask(http.MethodGet, collection)
						if mayRead == (got == http.StatusForbidden) {
							t.Errorf("GET %s: %d", collection, got)
						}
						if got == http.StatusOK {
							read++
						}
					}
				}
			}
			if read == 0 {
				t.Error("nothing could be read")
			}
			for path, want := range map[string]int{
				"/clusters/*/api/v1/secrets": http.StatusForbidden, "/clusters/*/apis/tenancy.kcp.io/v1alpha1/workspaces": http.StatusOK,
				status.ShardPath: http.StatusOK, status.TermsPath: http.StatusOK, status.ReplicaPath: http.StatusForbidden, status.InstallationPath: http.StatusForbidden,
				status.TopPath:                        http.StatusForbidden,
				status.TokenKeysPath:                  http.StatusOK,
				status.AccountPath:                    http.StatusBadRequest, // it asks for nothing
				status.ExportPath:                     http.StatusBadRequest,
				"/clusters/root" + status.ReplicaPath: http.StatusForbidden,
				"/metrics":                            http.StatusForbidden, "/readyz": http.StatusOK, "/clusters/root/api": http.StatusForbidden,
			} {
				if got := ask(http.MethodGet, path); got != want {
					t.Errorf("GET %s: %d, want %d", path, got, want)
				}
			}
			for _, path := range []string{"/election/step-down", status.FarewellPath} {
				if got := ask(http.MethodPost, path); got != http.StatusForbidden {
					t.Errorf("POST %s: %d", path, got)
				}
			}
			for _, path := range []string{"/election/step-down", "/election/step-down?shard=" + way[1], "/election/step-down?shard=" + way[0]} {
				if got := ask(http.MethodPost, path, clusters.RemoteUserHeader, "admin", clusters.RemoteGroupHeader, "system:masters"); got != http.StatusForbidden {
					t.Errorf("%s, for an administrator: %d", path, got)
				}
			}
			if got := ask(http.MethodGet, "/clusters/root/api/v1/secrets", "Impersonate-User", "admin", "Impersonate-Group", "system:masters"); got != http.StatusForbidden {
				t.Errorf("as an administrator: %d", got)
			}
		})
	}
}

func TestWhoIsNoMemberAnyMoreIsRefused(t *testing.T) {
	t.Parallel() // most of it is waiting
	i := install(t, "eu1")
	root := i.shards["root"]
	ask := func(client *http.Client) int {
		resp, err := client.Get(root.at.url + "/clusters/*/apis/core.kcp.io/v1alpha1/shards")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if got := ask(i.callAs("eu1")); got != http.StatusOK {
		t.Fatalf("a member is answered %d", got)
	}
	change := func(patch string) {
		t.Helper()
		must(root.at.shard.Clients.Shards.Patch(in(root, "root"), "eu1", types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(root)
		i.until("root", "it is refused", func() bool { return ask(i.callAs("eu1")) == http.StatusUnauthorized })
	}
	change(`{"metadata":{"annotations":{"` + clusters.AuthorityAnnotation + `":"another"}}}`)
	change(`{"metadata":{"annotations":{"` + clusters.AuthorityAnnotation + `":null,"` + clusters.RemovedAnnotation + `":"now"}}}`)
}

func TestAFrontTellsForWhomItAsksAndNobodyElseDoes(t *testing.T) {
	i := install(t, "eu1")
	root := i.shards["root"]
	certPEM, keyPEM, err := root.at.server.keys.Bundle().NewAuthority(pki.Member{Kind: pki.KindFront, Name: "f"})
	if err != nil {
		t.Fatal(err)
	}
	authority, err := pki.LoadAuthority(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	front, shard := i.callWith(authority), i.callAs("eu1")
	admin, err := rest.HTTPClientFor(root.at.adminConfig(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	const secrets, found = "/clusters/root/api/v1/secrets", "/clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters"
	ask := func(client *http.Client, path string, headers ...string) int {
		t.Helper()
		code, _, _ := browse(t, client, http.MethodGet, root.at.url+path, "", headers...)
		return code
	}
	if got := ask(front, found); got != http.StatusUnauthorized {
		t.Errorf("a front that is no member yet: %d", got)
	}
	member := func(fingerprint string) {
		t.Helper()
		must(root.at.shard.Clients.Shards.Patch(in(root, "root"), "root", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+clusters.FrontAnnotationPrefix+`f":"`+fingerprint+`"}}}`), metav1.PatchOptions{}))(root)
	}
	member(authority.Fingerprint())
	i.until("root", "the front is a member", func() bool { return ask(front, found) == http.StatusOK })

	const user, group, masters = clusters.RemoteUserHeader, clusters.RemoteGroupHeader, "system:masters"
	for name, tc := range map[string]struct {
		client  *http.Client
		path    string
		headers []string
		want    int
	}{
		"a front, for an administrator":               {front, secrets, []string{user, "ann", group, "dev", group, masters}, http.StatusOK},
		"a front, for somebody":                       {front, secrets, []string{user, "joe", group, "dev"}, http.StatusForbidden},
		"a front, for somebody, what fronts may read": {front, found, []string{user, "joe"}, http.StatusForbidden},
		"a front, for nobody":                         {front, secrets, []string{user, "system:anonymous", group, "system:unauthenticated"}, http.StatusForbidden},
		"a front, for the leader":                     {front, secrets, []string{user, identity.LeaderUser, group, masters}, http.StatusUnauthorized},
		"a front, for another shard's group":          {front, found, []string{user, "joe", group, "system:regent:shards"}, http.StatusUnauthorized},
		"a front, for a service account":              {front, secrets, []string{user, "system:serviceaccount:default:bot"}, http.StatusUnauthorized},
		"a front, for all service accounts":           {front, secrets, []string{user, "joe", group, "system:serviceaccounts"}, http.StatusUnauthorized},
		"a front, for somebody of a cluster":          {front, secrets, []string{user, "joe", clusters.RemoteExtraPrefix + "Authentication.kcp.io%2fcluster-Name", "root"}, http.StatusUnauthorized},
		// which nobody knows
		"a front, with a token":                 {front, secrets, []string{"Authorization", "Bearer t-root"}, http.StatusUnauthorized},
		"a front, for itself":                   {front, secrets, nil, http.StatusForbidden},
		"a front, for itself, what it may read": {front, found, nil, http.StatusOK},
		"a front, what shards ask of shards":    {front, status.AccountPath, nil, http.StatusForbidden},
		"a front, for an export":                {front, status.ExportPath, nil, http.StatusForbidden},
		"a front, for the keys of tokens":       {front, status.TokenKeysPath, nil, http.StatusForbidden},
		"a shard, for an administrator":         {shard, secrets, []string{user, "ann", group, masters}, http.StatusForbidden},
		"an administrator, for somebody":        {admin, secrets, []string{user, "joe"}, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ask(tc.client, tc.path, tc.headers...); got != tc.want {
				t.Errorf("%d, want %d", got, tc.want)
			}
		})
	}
	member("another")
	i.until("root", "an old membership is refused", func() bool { return ask(front, found) == http.StatusUnauthorized })
}

// The status of what waits is written: nothing in the caches tells a new leader that there is something to do.
func TestANewLeaderKnowsWhatWaits(t *testing.T) {
	t.Parallel() // most of it is waiting
	i := install(t)
	i.cordon("root")
	root := i.shards["root"]
	root.create("waits")
	i.until("root", "it says what it waits for", func() bool {
		scheduled := conditions.Get(root.get("waits"), tenancyv1alpha1.WorkspaceScheduled)
		return scheduled != nil && strings.Contains(scheduled.Message, "1 cordoned")
	})
	if err := root.at.stop(t); err != nil {
		t.Fatal(err)
	}
	i.again("root")
	root = i.shards["root"]
	i.until("root", "the new leader has swept", func() bool { _, running := root.at.swept(); return !running })
	must(root.at.shard.Clients.Shards.Patch(in(root, "root"), "root", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+clusters.CordonAnnotation+`":null}}}`), metav1.PatchOptions{}))(root)
	root.ready("waits")
}

// What a shard says of itself is the same at another one. One that does not answer has a Fault, and costs the others
// nothing.
func TestEachShardTellsOfAllOfThem(t *testing.T) {
	i := install(t, "eu1")
	i.cordon("eu1")
	for _, at := range []string{"root", "eu1"} {
		whole := untilAnswered(t, i.shards[at].at.replica, status.InstallationPath, "both shards tell what they have", func(all status.Installation) bool {
			return len(all.Shards) == 2 && all.Shards[0].Leader != "" && all.Shards[1].Leader != "" && all.Shards[1].Clusters > 0 && all.Shards[0].Cordoned
		})
		for n, name := range []string{"eu1", "root"} {
			shard, server := whole.Shards[n], i.shards[name].at.server
			if shard.Name != name || shard.Fault != "" || shard.Leader != server.name || len(shard.Replicas) != 1 || shard.Cordoned != (name == "eu1") || shard.Capacity != clusters.DefaultCapacity {
				t.Errorf("%s says of %s: %+v", at, name, shard)
				continue
			}
			r := shard.Replicas[0]
			if r.URL != i.shards[name].at.url || r.Election.Epoch != 1 || len(r.Peers) != 1 || !r.Peers[0].Heard || r.Peers[0].Shard == name {
				t.Errorf("%s says of %s's replica: %+v", at, name, r)
			}
		}
		if whole.Root != "root" {
			t.Errorf("the root shard is %s", whole.Root)
		}
	}
	if err := i.shards["eu1"].at.stop(t); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	untilAnswered(t, i.shards["root"].at.replica, status.InstallationPath, "eu1 has a fault", func(all status.Installation) bool {
		return len(all.Shards) == 2 && all.Shards[0].Name == "eu1" && all.Shards[0].Fault != "" && all.Shards[1].Leader != ""
	})
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("that took %v", took)
	}
}
