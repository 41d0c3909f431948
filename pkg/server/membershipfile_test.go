package server

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/keys"
	"github.com/regent-project/regent/pkg/server/pki"
)

// keepMembership writes a membership as an operator does.
func keepMembership(t *testing.T, file string, m *pki.Membership) {
	t.Helper()
	content, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// renew makes the membership of a member anew, with another key. The one before is refused from then on.
func (i *installation) renew(m pki.Member, root pki.RootShard) *pki.Membership {
	i.Helper()
	at := i.shards["root"]
	membership, err := at.at.server.keys.Bundle().NewMembership(m, root)
	if err != nil {
		i.Fatal(err)
	}
	authority, err := membership.Authority()
	if err != nil {
		i.Fatal(err)
	}
	shard, annotation := m.Name, clusters.AuthorityAnnotation
	if m.Kind == pki.KindFront {
		shard, annotation = "root", clusters.FrontAnnotationPrefix+m.Name
	}
	must(at.at.shard.Clients.Shards.Patch(in(at, "root"), shard, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+annotation+`":"`+authority.Fingerprint()+`"}}}`), metav1.PatchOptions{}))(at)
	return membership
}

// A shard and a front that are given new memberships go on with them, and nobody accepts the ones before. They find the
// root shard where the new ones say.
func TestANewMembershipIsUsedWithoutARestart(t *testing.T) {
	t.Parallel() // most of it is waiting
	i := install(t, "eu1")
	e := i.open("f")
	root, eu1 := i.shards["root"], i.shards["eu1"]
	before := authorityOf(eu1.at.server.keys)
	moved := pki.RootShard{Name: "root", URLs: []string{root.at.url, "https://127.0.0.1:1"}}
	keepMembership(t, i.cfgs["eu1"].MembershipFile, i.renew(pki.Member{Kind: pki.KindShard, Name: "eu1"}, moved))
	keepMembership(t, e.file, i.renew(pki.Member{Kind: pki.KindFront, Name: "f"}, moved))

	i.until("eu1", "it calls with the new membership", func() bool {
		return authorityOf(eu1.at.server.keys).Fingerprint() != before.Fingerprint()
	})
	for own, other := range map[string]string{"root": "eu1", "eu1": "root"} {
		i.until(own, own+" hears "+other, func() bool { return i.shards[own].at.shard.Shards.Contact.Hears(other) })
	}
	i.until("root", "the front is ready, and leads to both shards", func() bool {
		ready, _ := e.ask(e.admin, "/readyz")
		here, _ := e.ask(e.admin, "/clusters/root/api/v1/namespaces")
		there, _ := e.ask(e.admin, "/shards/eu1/clusters/system:admin/api/v1/namespaces")
		return ready == http.StatusOK && here == http.StatusOK && there == http.StatusOK
	})
	with := i.callWith(before)
	i.until("root", "the membership before is refused", func() bool {
		code, _, _ := browse(t, with, http.MethodGet, root.at.url+"/clusters/*/apis/core.kcp.io/v1alpha1/shards", "")
		return code == http.StatusUnauthorized
	})
	if kept, err := pki.Read(filepath.Join(i.cfgs["eu1"].RootDirectory, pkiDirectory)); err != nil || !kept.IsMember() {
		t.Errorf("pki/ holds %v (%v)", kept, err)
	}
}

// A membership that is another member's, or that others may read, changes nothing, and is told of.
func TestAFaultyMembershipChangesNothing(t *testing.T) {
	t.Parallel() // most of it is waiting
	i := install(t, "eu1")
	eu1, file := i.shards["eu1"], i.cfgs["eu1"].MembershipFile
	before, with := eu1.at.server.keys.Bundle(), authorityOf(eu1.at.server.keys)
	stranger := i.shards["root"].at.server.keys.Bundle()
	other, err := stranger.NewMembership(pki.Member{Kind: pki.KindShard, Name: "us1"}, i.cfgs["eu1"].Membership.Root)
	if err != nil {
		t.Fatal(err)
	}
	told := func(what string) func() bool {
		return func() bool {
			status, body := certificatesCheck(eu1.at.server.keys)
			return status == http.StatusInternalServerError && strings.Contains(body, what)
		}
	}
	keepMembership(t, file, other)
	i.until("eu1", "it says that the membership is another shard's", told("us1"))
	keepMembership(t, file, i.cfgs["eu1"].Membership)
	i.until("eu1", "all is well again", func() bool { status, _ := certificatesCheck(eu1.at.server.keys); return status == http.StatusOK })
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	i.until("eu1", "it says that others may read the membership", told("0600"))
	if eu1.at.server.keys.Bundle() != before || authorityOf(eu1.at.server.keys) != with {
		t.Error("it uses something else than before")
	}
}

// authorityOf returns what signs a replica's calls to other members.
func authorityOf(k *keys.Keys) *pki.Authority {
	_, authority := k.ForMembers()
	return authority
}

func certificatesCheck(k *keys.Keys) (int, string) {
	answer := httptest.NewRecorder()
	k.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz/certificates", nil))
	return answer.Code, answer.Body.String()
}
