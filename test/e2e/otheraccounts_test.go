package e2e

import (
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/test/e2e/harness"
)

// program is an entrance for whoever has a token and nothing else.
type program struct {
	t       *testing.T
	through interface {
		Name() string
		AdminConfig(cluster string) *rest.Config
	}
	token string
}

func (b program) Name() string { return b.through.Name() }

func (b program) config(cluster string) *rest.Config {
	config := rest.AnonymousClientConfig(b.through.AdminConfig(cluster))
	config.BearerToken = b.token
	return config
}

func (b program) Kube(cluster string) kubernetes.Interface {
	b.t.Helper()
	client, err := kubernetes.NewForConfig(b.config(cluster))
	if err != nil {
		b.t.Fatal(err)
	}
	return client
}

func (b program) Dynamic(cluster string) dynamic.Interface {
	b.t.Helper()
	client, err := dynamic.NewForConfig(b.config(cluster))
	if err != nil {
		b.t.Fatal(err)
	}
	return client
}

// writes has the program create a ConfigMap.
func (b program) writes(cluster string) error {
	_, err := b.Kube(cluster).CoreV1().ConfigMaps("default").Create(b.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "written-"}}, metav1.CreateOptions{})
	return err
}

// administers makes a service account of a cluster its administrator, and returns a token of it.
func administers(t *testing.T, at entrance, cluster, name string) string {
	t.Helper()
	kube := at.Kube(cluster)
	if _, err := kube.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: name}},
	}
	if _, err := kube.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := kube.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

// A program makes workspaces, which get their clusters on all shards, and works in each of them: at every replica of
// the shard, and through a front. While its own shard is down it is refused elsewhere, and nobody else is.
func TestAnAccountWorksInItsWorkspacesOnAllShardsI11(t *testing.T) {
	t.Parallel() // most of it is waiting
	i := harness.Install(t, "eu1", "us1")
	front := i.StartFront()
	front.WaitReady()
	all := []*harness.Front{front}
	create(t, all, "root", "team")
	team, home := awaitReady(t, all, "root", "team")
	bot := program{t, front, administers(t, front, team, "bot")}
	made := map[string]string{} // a cluster on each shard
	for n := 0; len(made) < 3 && n < 30; n++ {
		name := "made-" + string(rune('a'+n))
		create(t, []program{bot}, team, name)
		cluster, shard := awaitReady(t, []program{bot}, team, name)
		made[shard] = cluster
	}
	if len(made) != 3 {
		t.Fatalf("its workspaces are on %q only", slices.Sorted(maps.Keys(made)))
	}
	stranger := administers(t, bot, made[home], "bot") // of the same name, in another cluster
	local := map[string]string{}                       // tokens of accounts that are on the shard where they work
	for _, m := range i.All() {
		local[m.Name] = administers(t, bot, made[m.Name], "local")
		entrances := []program{bot}
		for _, r := range m.Replicas {
			entrances = append(entrances, program{t, r, bot.token})
		}
		for _, at := range entrances {
			if err := at.writes(made[m.Name]); err != nil {
				t.Errorf("in its workspace on %s, through %s: %v", m.Name, at.Name(), err)
			}
			if at.token = stranger; m.Name != home {
				if err := at.writes(made[m.Name]); !apierrors.IsForbidden(err) {
					t.Errorf("an account of the same name on %s, through %s: %v", m.Name, at.Name(), err)
				}
			}
		}
	}

	var own *harness.ShardMember
	for _, m := range i.All() {
		if m.Name == home {
			own = m
		}
	}
	for _, r := range own.Replicas {
		r.Signal(syscall.SIGKILL)
		r.Wait()
	}
	own.Etcd.Kill()
	killed := time.Now()
	for _, m := range i.All() {
		if m == own {
			continue
		}
		for _, r := range m.Replicas {
			harness.Eventually(t, "its account is refused at "+r.Name(), func() bool { return apierrors.IsUnauthorized(program{t, r, bot.token}.writes(made[m.Name])) })
			t.Logf("%s refuses it %v after its shard was killed", r.Name(), time.Since(killed).Round(time.Millisecond))
			if err := (program{t, r, local[m.Name]}).writes(made[m.Name]); err != nil {
				t.Errorf("an account of %s itself: %v", r.Name(), err)
			}
		}
	}
	own.Etcd.Start(t)
	for _, r := range own.Replicas {
		r.Again()
	}
	for shard, cluster := range made {
		harness.Eventually(t, "it works on "+shard+" again", func() bool { return bot.writes(cluster) == nil })
	}
}
