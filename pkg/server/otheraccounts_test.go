package server

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/serviceaccounts"
	"github.com/regent-project/regent/pkg/server/status"
)

// uncordon makes a shard take new clusters again.
func (i *installation) uncordon(name string) {
	i.Helper()
	root := i.shards["root"]
	must(root.at.shard.Clients.Shards.Patch(in(root, "root"), name, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+clusters.CordonAnnotation+`":null}}}`), metav1.PatchOptions{}))(root)
	for own := range i.shards {
		i.until(own, own+" knows that "+name+" is not cordoned", func() bool {
			shard, ok := i.shards[own].at.shard.Informers.Shards.Get(clusters.Key{Cluster: clusters.SystemShards, Name: name})
			return ok && !clusters.IsCordoned(shard)
		})
	}
}

// program is a service account with a token, which is cluster-admin in its logical cluster.
type program struct {
	token   string
	cluster logicalcluster.Name
}

func (i *installation) program(shard string, cluster logicalcluster.Name) *program {
	i.Helper()
	at := i.shards[shard].at
	at.bot(i.T, cluster)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bot"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: aNamespace, Name: "bot"}},
	}
	if _, err := at.adminIn(i.T, cluster).RbacV1().ClusterRoleBindings().Create(i.Context(), binding, metav1.CreateOptions{}); err != nil {
		i.Fatal(err)
	}
	return &program{at.tokenOf(i.T, cluster, authenticationv1.TokenRequestSpec{}).Status.Token, cluster}
}

// makes has a program make a workspace in its own cluster, and returns its logical cluster when it is Ready.
func (i *installation) makes(p *program, shard, name string) logicalcluster.Name {
	i.Helper()
	u := i.shards[shard]
	client := u.at.kubeOf(i.T, p.token, p.cluster).Discovery().RESTClient()
	const workspaces = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
	i.until(shard, "the program may make a workspace", func() bool {
		body := `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"` + name + `"}}`
		err := client.Post().AbsPath(workspaces).Body([]byte(body)).Do(i.Context()).Error()
		return err == nil || apierrors.IsAlreadyExists(err)
	})
	var made *tenancyv1alpha1.Workspace
	i.until(shard, name+" is Ready", func() bool {
		made = must(u.at.shard.Clients.Workspaces.Get(in(u, p.cluster.String()), name, metav1.GetOptions{}))(u)
		return made.Status.Phase == corev1alpha1.LogicalClusterPhaseReady
	})
	return logicalcluster.Name(made.Spec.Cluster)
}

// across is an installation in which bot, an account of a cluster on shard eu1, has made a workspace that is on shard
// root.
type across struct {
	*installation
	bot  *program
	made logicalcluster.Name
}

func worksAcross(t *testing.T, others ...string) *across {
	t.Helper()
	i := install(t, append(others, "eu1")...)
	i.cordon("root")
	for _, other := range others {
		i.cordon(other)
	}
	root := i.shards["root"]
	root.create("home")
	bot := i.program("eu1", logicalcluster.Name(root.ready("home")))
	i.cordon("eu1")
	i.uncordon("root")
	return &across{i, bot, i.makes(bot, "eu1", "made")}
}

// get has a program list ConfigMaps at a shard.
func (i *installation) get(p *program, shard string, cluster logicalcluster.Name) error {
	_, err := i.shards[shard].at.kubeOf(i.T, p.token, cluster).CoreV1().ConfigMaps(aNamespace).List(i.Context(), metav1.ListOptions{})
	return err
}

func (i *installation) untilServed(p *program, shard string, cluster logicalcluster.Name) {
	i.Helper()
	i.until(shard, shard+" serves the account", func() bool {
		err := i.get(p, shard, cluster)
		if err != nil && !apierrors.IsUnauthorized(err) { // 401 until it has the other shard's keys
			i.Fatal(err)
		}
		return err == nil
	})
}

func TestAnAccountWorksInTheWorkspaceThatItHasMadeOnAnotherShard(t *testing.T) {
	i := worksAcross(t)
	i.untilServed(i.bot, "root", i.made)
	if lc := i.cluster("eu1", &tenancyv1alpha1.Workspace{Spec: tenancyv1alpha1.WorkspaceSpec{Cluster: i.made.String()}}); lc != nil {
		t.Fatal("the workspace is on the account's own shard")
	}
	works := func(client kubernetes.Interface, name string) {
		t.Helper()
		if _, err := client.CoreV1().ConfigMaps(aNamespace).Create(t.Context(), configMapNamed(name), metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	}
	root, eu1 := i.shards["root"].at, i.shards["eu1"].at
	works(root.kubeOf(t, i.bot.token, i.made), "directly")
	config := root.configOf(t, i.bot.token, i.made)
	config.Host = strings.Replace(config.Host, root.url, i.open("f1").url, 1)
	front, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	works(front, "through-a-front")

	here, err := whoami(t, root.kubeOf(t, i.bot.token, i.made))
	if err != nil {
		t.Fatal(err)
	}
	home, err := whoami(t, eu1.kubeOf(t, i.bot.token, i.bot.cluster))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(home, here); diff != "" {
		t.Errorf("at home and elsewhere it is not the same (-home +elsewhere):\n%s", diff)
	}

	// What shards ask each other is for nobody else.
	for _, path := range []string{status.TokenKeysPath, status.AccountPath} {
		if err := root.kubeOf(t, i.bot.token, i.made).Discovery().RESTClient().Get().AbsPath(path).Do(t.Context()).Error(); !apierrors.IsForbidden(err) {
			t.Errorf("%s, for a tenant: %v", path, err)
		}
	}

	// An account of the same name is somebody else, whichever shard it is of.
	for shard, cluster := range map[string]logicalcluster.Name{"root": "root", "eu1": i.also("eu1")} {
		namesake := i.program(shard, cluster)
		i.until("root", "the namesake of "+shard+" is known, and refused", func() bool {
			err := i.get(namesake, "root", i.made)
			if err == nil {
				t.Fatalf("the bot of %s on %s has got in", cluster, shard)
			}
			return apierrors.IsForbidden(err)
		})
	}
}

// also makes one more workspace on a shard, and returns its logical cluster.
func (i *installation) also(shard string) logicalcluster.Name {
	i.Helper()
	i.cordon("root")
	i.uncordon(shard)
	root := i.shards["root"]
	root.create("other")
	return logicalcluster.Name(root.ready("other"))
}

func TestAnAccountThatWasDeletedIsRefusedByOtherShardsWithinSeconds(t *testing.T) {
	i := worksAcross(t)
	i.untilServed(i.bot, "root", i.made)
	root, eu1 := i.shards["root"].at, i.shards["eu1"].at
	accounts := eu1.adminIn(t, i.bot.cluster).CoreV1().ServiceAccounts(aNamespace)
	if err := accounts.Delete(t.Context(), "bot", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	untilDead(t, root.kubeOf(t, i.bot.token, i.made), "its account was deleted on another shard")
	// The next one of that name has another uid. Its own token is good, and the old one stays dead.
	eu1.bot(t, i.bot.cluster)
	next := &program{eu1.tokenOf(t, i.bot.cluster, authenticationv1.TokenRequestSpec{}).Status.Token, i.bot.cluster}
	if err := i.get(next, "root", i.made); err != nil {
		t.Errorf("the next account of that name: %v", err)
	}
	if err := i.get(i.bot, "root", i.made); !apierrors.IsUnauthorized(err) {
		t.Errorf("the token of the account before it: %v", err)
	}
}

func TestAShardsKeyVouchesForNoAccountOfAnotherShard(t *testing.T) {
	i := worksAcross(t)
	i.untilServed(i.bot, "root", i.made)
	root, eu1 := i.shards["root"].at, i.shards["eu1"].at
	account, err := eu1.adminIn(t, i.bot.cluster).CoreV1().ServiceAccounts(aNamespace).Get(t.Context(), "bot", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var own *corev1.ServiceAccount
	i.until("root", "the workspace has its account", func() (has bool) {
		var err error
		own, err = root.adminIn(t, i.made).CoreV1().ServiceAccounts(aNamespace).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	for name, c := range map[string]struct {
		by    *catalogued
		grant serviceaccounts.Grant
		at    string
	}{
		"an account of eu1, by root, at eu1":                   {root, serviceaccounts.Grant{Cluster: i.bot.cluster, Account: account}, "eu1"},
		"an account of eu1, by root, at root":                  {root, serviceaccounts.Grant{Cluster: i.bot.cluster, Account: account}, "root"},
		"an account of root, by eu1, at root":                  {eu1, serviceaccounts.Grant{Cluster: i.made, Account: own}, "root"},
		"an account of root's own cluster, by eu1, at root":    {eu1, serviceaccounts.Grant{Cluster: clusters.Root, Account: own}, "root"},
		"an account of a cluster that is nowhere, by eu1":      {eu1, serviceaccounts.Grant{Cluster: "nowhere0000000000", Account: own}, "root"},
		"an account of a cluster that all shards have, by eu1": {eu1, serviceaccounts.Grant{Cluster: clusters.SystemAdmin, Account: own}, "root"},
	} {
		c.grant.Audiences, c.grant.Lifetime = c.by.server.identity.Issuer.Audiences, time.Hour
		token, err := c.by.server.identity.Issuer.Issue(c.grant)
		if err != nil {
			t.Fatal(err)
		}
		forged := &program{token: token.Text}
		for _, in := range []logicalcluster.Name{i.made, i.bot.cluster} {
			if err := i.get(forged, c.at, in); !apierrors.IsUnauthorized(err) {
				t.Errorf("%s, in %s: %v", name, in, err)
			}
		}
	}
}

// I11: whoever waits for a shard that is down waits for a bounded time, and nobody else does.
func TestAccountsOfAShardThatIsDownAreRefusedAndHoldUpNobodyI11(t *testing.T) {
	t.Parallel() // most of it is waiting
	i := worksAcross(t)
	i.untilServed(i.bot, "root", i.made)
	root := i.shards["root"].at
	if err := i.shards["eu1"].at.stop(t); err != nil {
		t.Fatal(err)
	}
	untilDead(t, root.kubeOf(t, i.bot.token, i.made), "its shard was stopped")
	own := i.program("root", i.made)
	if err := i.get(own, "root", i.made); err != nil {
		t.Errorf("an account of the shard itself: %v", err)
	}
	i.again("eu1")
	i.untilServed(i.bot, "root", i.made)
}

func TestAccountsOfAShardThatWasRemovedAreRefused(t *testing.T) {
	t.Parallel() // most of it is waiting
	i := worksAcross(t)
	i.untilServed(i.bot, "root", i.made)
	root := i.shards["root"]
	must(root.at.shard.Clients.Shards.Patch(in(root, "root"), "eu1", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+clusters.RemovedAnnotation+`":"now"}}}`), metav1.PatchOptions{}))(root)
	untilDead(t, root.at.kubeOf(t, i.bot.token, i.made), "its shard was removed")
}

func TestATokenReviewTellsNobodyOfAccountsOfOtherShards(t *testing.T) {
	i := worksAcross(t)
	i.untilServed(i.bot, "root", i.made)
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: i.bot.token, Audiences: []string{i.shards["eu1"].at.server.identity.Issuer.Name}}}
	got, err := i.shards["root"].at.adminIn(t, i.made).AuthenticationV1().TokenReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil || got.Status.Authenticated {
		t.Errorf("%+v, %v", got, err)
	}
}
