package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/test/e2e/harness"
)

// rolled is an installation whose authority is rolled: shard root, shard eu1 and a front.
type rolled struct {
	*testing.T
	*harness.Installation
	a, b  *harness.Replica // of the root shard
	eu1   *harness.ShardMember
	front *harness.Front
	users []*users
}

// step takes a step. It is refused unless everybody has the one before.
func (r *rolled) step(name string, more ...string) (string, error) {
	r.Helper()
	return regent(r.T, append([]string{"pki", "roll", name, "--root-directory=" + r.a.Root, "--server=" + r.a.URL, "--server=" + r.b.URL}, more...)...)
}

// takes takes a step, and gives the root shard's other replica the keys.
func (r *rolled) takes(name string) {
	r.Helper()
	if out, err := r.step(name, "--front="+r.front.URL); err != nil {
		r.Fatalf("%s: %v: %s", name, err, out)
	}
	if r.a.Root != r.b.Root {
		copyPKI(r.T, r.a, r.b)
	}
	r.readKeysAgain()
}

// waits checks that a step is refused, and names those that have not the one before, and nobody else.
func (r *rolled) waits(name string, late ...string) {
	r.Helper()
	out, err := r.step(name, "--front="+r.front.URL)
	if err == nil {
		r.Fatalf("%s: it does not wait for %q", name, late)
	}
	for _, who := range []string{"shard root at", "shard eu1 at " + r.eu1.Replicas[0].URL, "shard eu1 at " + r.eu1.Replicas[1].URL, "front front-1 at"} {
		wanted := false
		for _, one := range late {
			wanted = wanted || strings.HasPrefix(who, one)
		}
		if strings.Contains(out, who) != wanted {
			r.Errorf("%s: it waits for %q: %t, want %t: %s", name, who, !wanted, wanted, out)
		}
	}
}

// certify gives a member its membership as it is to be now, and waits until it is used.
func (r *rolled) certify(file string, authority string, trusted int, replicas ...*harness.Replica) {
	r.Helper()
	mustRegent(r.T, "pki", "certify", "--root-directory="+r.a.Root, file)
	uses(r.T, authority, trusted, replicas...)
}

func (r *rolled) readKeysAgain() {
	r.front.ReadKeysAgain()
	for _, m := range r.All() {
		for _, one := range m.Replicas {
			one.ReadKeysAgain()
		}
	}
}

// come has users come with the credentials of this moment: through the front and directly, to both shards.
func (r *rolled) come() {
	r.Helper()
	r.readKeysAgain()
	for cluster, shard := range map[string]*harness.ShardMember{"root": r.Root, "root:team": r.eu1} {
		r.users = append(r.users, startUsersIn(r.T, cluster, []entrance{r.front, shard.Replicas[0], shard.Replicas[1]}...))
	}
}

// leave has the users go who came first.
func (r *rolled) leave(n int) {
	for _, u := range r.users[:2*n] {
		u.finish()
	}
}

// works creates a workspace below root and one below the cluster on eu1, which needs both shards.
func (r *rolled) works(name string) {
	r.Helper()
	r.readKeysAgain()
	for _, parent := range []string{"root", "root:team"} {
		create(r.T, []*harness.Front{r.front}, parent, name)
		awaitReady(r.T, []*harness.Front{r.front}, parent, name)
	}
}

// epochs are those of both shards' terms.
func (r *rolled) epochs() (all [2]int32) {
	for n, m := range []*harness.ShardMember{r.Root, r.eu1} {
		all[n] = *m.Leader(r.T).Lease().Spec.LeaseTransitions
	}
	return all
}

// openWatch opens a watch that nobody begins again.
func openWatch(t *testing.T, e entrance, cluster string) watch.Interface {
	t.Helper()
	w, err := e.Kube(cluster).CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

// mustShow fails the test unless a watch that is open shows a namespace.
func mustShow(t *testing.T, w watch.Interface, name string) {
	t.Helper()
	for late := time.After(harness.Patience); ; {
		select {
		case event, ok := <-w.ResultChan():
			if !ok {
				t.Error("a watch has ended")
				return
			}
			if o, ok := event.Object.(metav1.Object); ok && o.GetName() == name {
				return
			}
		case <-late:
			t.Errorf("a watch does not show %s", name)
			return
		}
	}
}

// The authority of an installation is exchanged in steps, while users of both shards write and read through the front
// and directly. Those who come with what each step has given them are served, and so are those from the step before. No
// step is taken before all processes have the one before. Nothing fails, no watch ends, no term ends, workspaces appear
// on both shards all the time. In the end what the old authority has signed is worth nothing.
func TestTheAuthorityOfAnInstallationIsRolledWithClientsConnected(t *testing.T) {
	t.Parallel() // most of it is waiting
	i := harness.InstallLong(t, "eu1")
	r := &rolled{T: t, Installation: i, a: i.Root.Replicas[0], b: i.Root.Replicas[1], eu1: i.Others[0], front: i.StartFront()}
	r.readKeysAgain()
	if _, err := i.TryRegent("shard", "cordon", "root"); err != nil {
		t.Fatal(err)
	}
	create(t, []*harness.Front{r.front}, "root", "team")
	if _, shard := awaitReady(t, []*harness.Front{r.front}, "root", "team"); shard != "eu1" {
		t.Fatalf("the workspace is on shard %q", shard)
	}
	if _, err := i.TryRegent("shard", "uncordon", "root"); err != nil {
		t.Fatal(err)
	}
	old := map[string]*rest.Config{"the front": r.front.Config("root"), "the front, to eu1": r.front.Config("root:team"), "the root shard": r.b.Config("root"), "eu1": r.eu1.Replicas[0].Config("root:team")}
	before := mustReadFile(t, r.eu1.Membership)
	oldAuthority, epochs := authorityOf(t, r.a, 0), r.epochs()
	watches := []watch.Interface{openWatch(t, r.front, "root:team"), openWatch(t, r.eu1.Replicas[0], "root:team")}
	eu1 := r.eu1.Replicas

	if out, err := r.step("begin"); err == nil || !strings.Contains(out, "front front-1 was not asked") {
		t.Errorf("a roll begins although a front was not asked: %v, %s", err, out)
	}
	if out, err := regent(t, "pki", "roll", "begin", "--root-directory="+eu1[0].Root); err == nil || !strings.Contains(out, "pki/ of the root shard") {
		t.Errorf("a roll begins at a member: %v, %s", err, out)
	}
	r.come()
	r.takes("begin")
	uses(t, oldAuthority, 2, r.a, r.b)
	r.waits("switch", "shard eu1", "front")
	r.certify(r.eu1.Membership, oldAuthority, 2, eu1...)
	r.waits("switch", "front")
	r.certify(r.front.Membership, oldAuthority, 2)
	newAuthority := authorityOf(t, r.a, 1)
	r.come()
	r.works("begun")

	harness.Eventually(t, "the authority is switched", func() bool { _, err := r.step("switch", "--front="+r.front.URL); return err == nil })
	uses(t, newAuthority, 2, r.a)
	if r.a.Root != r.b.Root {
		r.waits("finish", "shard root", "shard eu1", "front")
		copyPKI(t, r.a, r.b)
	}
	uses(t, newAuthority, 2, r.b)
	r.works("switching")
	r.waits("finish", "shard eu1", "front")
	r.certify(r.front.Membership, newAuthority, 2)
	r.certify(r.eu1.Membership, newAuthority, 2, eu1...)
	r.come()
	r.works("switched")
	r.leave(2) // what the old authority has signed for them ends with the next step

	harness.Eventually(t, "the roll is finished", func() bool { _, err := r.step("finish", "--front="+r.front.URL); return err == nil })
	if r.a.Root != r.b.Root {
		copyPKI(t, r.a, r.b)
	}
	uses(t, newAuthority, 1, r.a, r.b)
	r.works("finishing")
	r.certify(r.eu1.Membership, newAuthority, 1, eu1...)
	r.certify(r.front.Membership, newAuthority, 1)
	for who, config := range old {
		harness.Eventually(t, who+" refuses what the old authority has signed", func() bool { return refusesCertificate(t, config, r.front.Config("root")) })
	}
	r.come()
	r.works("finished")
	if _, err := r.front.Kube("root:team").CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "after-the-roll"}}, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	for _, w := range watches {
		mustShow(t, w, "after-the-roll")
	}
	for _, u := range r.users {
		harness.Eventually(t, "those who came last were served", func() bool { return len(u.between(time.Time{}, time.Now())) > 20 })
		u.finish()
		u.tell(t)
		if n := failures(u.requests); n > 0 {
			t.Errorf("%d of %d requests failed", n, len(u.requests))
		}
	}
	if now := r.epochs(); now != epochs {
		t.Errorf("the shards are led in epochs %d, and were in %d", now, epochs)
	}
	r.mustStartAgain(before)
}

// refusesCertificate reports whether a server answers with 401 to a certificate, asked with what the client trusts now.
func refusesCertificate(t *testing.T, old, now *rest.Config) bool {
	t.Helper()
	config := rest.CopyConfig(old)
	config.CAData = now.CAData
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	return apierrors.IsUnauthorized(err)
}

// mustStartAgain restarts a member and the front, which have in their files what they used, and gives a member what it
// had before the roll.
func (r *rolled) mustStartAgain(before []byte) {
	r.Helper()
	eu1 := r.eu1.Replicas
	for _, one := range eu1 {
		one.Signal(15)
		one.Wait()
		one.Again()
	}
	r.eu1.WaitHeard(r.T, 1)
	r.front.Signal(15)
	r.front.Wait()
	r.front.Again()
	r.front.WaitReady()
	r.works("again")
	if err := os.WriteFile(r.eu1.Membership, before, 0o600); err != nil {
		r.Fatal(err)
	}
	harness.Eventually(r.T, "the log says that the membership is one from before the roll", func() bool {
		return len(eu1[0].Lines("The certificates stay as they are", "from before the authority was rolled")) > 0
	})
	r.works("all-the-same")
}
