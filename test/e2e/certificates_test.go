package e2e

import (
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/test/e2e/harness"
)

// person is a user with a certificate and nothing else.
type person struct {
	*bearer
	cert, key string
}

// newPerson returns a user to whom an authority has issued a certificate. It expires at end; zero: in an hour.
func newPerson(t *testing.T, at *harness.Replica, by *authority, end time.Time, name string, groups ...string) *person {
	t.Helper()
	p := &person{bearer: newBearer(t, filepath.Join(at.Root, "pki", "ca.crt"), at.URL)}
	p.cert, p.key = by.issueUntil(end, name, groups...)
	pair, err := tls.LoadX509KeyPair(p.cert, p.key)
	if err != nil {
		t.Fatal(err)
	}
	p.client.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{pair}
	return p
}

// kubectl runs kubectl in a cluster.
func (p *person) kubectl(cluster string, args ...string) (string, error) {
	return p.run(cluster, append([]string{"--client-certificate=" + p.cert, "--client-key=" + p.key}, args...))
}

// until asks, on a connection that stays open, until the status is as wanted, and returns how long that took.
func (p *person) until(cluster string, want int) time.Duration {
	p.t.Helper()
	return p.await(30*time.Second, want, func() int { return p.get("", cluster+"/api/v1/namespaces/default/configmaps") })
}

// A user of an authority of --client-ca-file works until its bindings are deleted, or the authority is taken out of the
// file.
func TestACertificateWorksUntilItIsRevokedI14(t *testing.T) {
	t.Parallel() // most of it is waiting
	staff, guests := newAuthority(t, "staff-ca"), newAuthority(t, "guests-ca")
	file := filepath.Join(t.TempDir(), "clients.crt")
	trust := func(all ...*authority) {
		t.Helper()
		var content []byte
		for _, a := range all {
			one, err := os.ReadFile(a.file)
			if err != nil {
				t.Fatal(err)
			}
			content = append(content, one...)
		}
		if err := os.WriteFile(file+".new", content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	trust(staff, guests)
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	shard.Args = []string{"--client-ca-file=" + file}
	r := shard.Start(t, "a")
	r.WaitRoot()
	r.CreateWorkspace("team")
	r.WaitWorkspace("team")
	owner := kubectl{r, "root:team"}
	ann, gus := newPerson(t, r, staff, time.Time{}, "ann", "team"), newPerson(t, r, guests, time.Time{}, "gus", "team")
	if out, err := ann.kubectl("root:team", "get", "configmaps"); err == nil || !strings.Contains(out, "you may not enter it") {
		t.Errorf("kubectl of somebody who was not let in: %v\n%s", err, out)
	}
	let := func() {
		t.Helper()
		owner.run("create", "clusterrolebinding", "team-enters", "--clusterrole=system:kcp:workspace:access", "--group=team")
		owner.run("create", "clusterrolebinding", "team-edits", "--clusterrole=edit", "--group=team")
		t.Logf("whoever was let in could work %v after kubectl had said so", ann.until("root:team", http.StatusOK).Round(time.Millisecond))
		gus.until("root:team", http.StatusOK)
	}
	let()
	for _, p := range []*person{ann, gus} {
		for _, args := range [][]string{{"get", "configmaps"}, {"auth", "whoami"}, {"auth", "can-i", "create", "configmaps"}} {
			if out, err := p.kubectl("root:team", args...); err != nil {
				t.Errorf("kubectl %v: %v\n%s", args, err, out)
			}
		}
	}
	began := time.Now()
	if err := r.Kube("root:team").RbacV1().ClusterRoleBindings().Delete(t.Context(), "team-enters", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ann.until("root:team", http.StatusForbidden)
	t.Logf("a user whose binding was deleted was refused %v after that had been asked for", time.Since(began).Round(time.Millisecond))
	owner.run("delete", "clusterrolebinding", "team-edits")
	let()

	var expires time.Time
	var short *person
	// One that has expired before it was shown tells nothing.
	harness.Eventually(t, "a certificate that soon expires works", func() bool {
		expires = time.Now().Add(4 * time.Second).Truncate(time.Second) // certificates know seconds
		short = newPerson(t, r, staff, expires, "sue", "team")
		return short.get("", "root:team/api/v1/namespaces/default/configmaps") == http.StatusOK
	})
	short.until("root:team", http.StatusUnauthorized)
	late := time.Since(expires)
	t.Logf("a certificate was refused %v after the second in which it expired had begun, on an open connection", late.Round(10*time.Millisecond))
	if late < 0 {
		t.Errorf("a certificate was refused %v before it expired", -late)
	}

	began = time.Now()
	trust(staff)
	gus.until("root:team", http.StatusUnauthorized)
	t.Logf("certificates of an authority that was taken out of the file were refused after %v, on open connections, too", time.Since(began).Round(time.Millisecond))
	if out, err := gus.kubectl("root:team", "get", "configmaps"); err == nil || !strings.Contains(out, unauthorized) {
		t.Errorf("kubectl with a certificate of an authority that is not trusted: %v\n%s", err, out)
	}
	if out, err := ann.kubectl("root:team", "get", "configmaps"); err != nil {
		t.Errorf("kubectl with a certificate of the other authority: %v\n%s", err, out)
	}
}
