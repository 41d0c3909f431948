package pki

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var rootShard = RootShard{Name: "root", URLs: []string{"https://127.0.0.1:6443"}}

func newMembership(t *testing.T, b *Bundle, m Member) *Membership {
	t.Helper()
	membership, err := b.NewMembership(m, rootShard)
	if err != nil {
		t.Fatal(err)
	}
	return membership
}

func TestAShardJoinsWithAMembershipAlone(t *testing.T) {
	root := ensure(t, newDirectory(t))
	content, err := newMembership(t, root, eu1).Encode()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "eu1.yaml")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	read, err := ReadMembership(name)
	if err != nil {
		t.Fatal(err)
	}
	directory := newDirectory(t)
	for range 2 { // a replica that starts again joins again
		if err := Join(directory, read); err != nil {
			t.Fatal(err)
		}
		b := ensure(t, directory)
		if string(b.CAPEM) != string(root.CAPEM) {
			t.Error("it trusts another authority")
		}
		if b.AdminCertPEM != nil || exists(b.file(CAKeyFile)) {
			t.Error("a member can make administrators")
		}
		if a, err := b.Authority("eu1"); err != nil || a.Member != eu1 {
			t.Errorf("its authority: %v, error %v", a, err)
		}
		if _, err := b.Authority("eu2"); err == nil || !strings.Contains(err.Error(), "--shard-name=eu1") {
			t.Errorf("under another name: error %v", err)
		}
		if _, _, err := b.ServingCert([]string{"localhost"}, nil); err != nil {
			t.Error(err)
		}
	}
}

func TestTheRootShardIsAMemberByItsKey(t *testing.T) {
	b := ensure(t, newDirectory(t))
	a, err := b.Authority("root")
	if err != nil {
		t.Fatal(err)
	}
	if a.Member != (Member{KindShard, "root"}) || exists(b.file(MemberKeyFile)) {
		t.Errorf("%v, on disk: %v", a.Member, exists(b.file(MemberKeyFile)))
	}
}

func TestANewerMembershipOfTheSameMemberReplacesTheOld(t *testing.T) {
	root, directory := ensure(t, newDirectory(t)), newDirectory(t)
	var fingerprints []string
	for range 2 {
		if err := Join(directory, newMembership(t, root, eu1)); err != nil {
			t.Fatal(err)
		}
		a, err := ensure(t, directory).Authority("eu1")
		if err != nil {
			t.Fatal(err)
		}
		fingerprints = append(fingerprints, a.Fingerprint())
	}
	if fingerprints[0] == fingerprints[1] {
		t.Error("the old one is still there")
	}
}

func TestAMembershipThatDoesNotFitIsRefused(t *testing.T) {
	root, other := ensure(t, newDirectory(t)), ensure(t, newDirectory(t))
	joined := func(t *testing.T) string {
		directory := newDirectory(t)
		if err := Join(directory, newMembership(t, root, eu1)); err != nil {
			t.Fatal(err)
		}
		return directory
	}
	empty := func(t *testing.T) string { return newDirectory(t) }
	for name, test := range map[string]struct {
		directory  func(*testing.T) string
		membership *Membership
		want       string
	}{
		"another installation's":   {joined, newMembership(t, other, eu1), "another installation"},
		"another shard's":          {joined, newMembership(t, root, Member{KindShard, "eu2"}), "a --root-directory of its own"},
		"a front's":                {joined, newMembership(t, root, Member{KindFront, "eu1"}), "a --root-directory of its own"},
		"to a shard with its own":  {func(t *testing.T) string { d := newDirectory(t); ensure(t, d); return d }, newMembership(t, root, eu1), "an empty --root-directory"},
		"to the root shard itself": {func(*testing.T) string { return root.directory }, newMembership(t, root, eu1), "root shard"},
		"with another's key":       {empty, changed(newMembership(t, root, eu1), func(m *Membership) { m.Key = newMembershipKey(t, root) }), "key"},
		"with another authority":   {empty, changed(newMembership(t, root, eu1), func(m *Membership) { m.CertificateAuthority = string(other.CAPEM) }), "not signed"},
		"for another name":         {empty, changed(newMembership(t, root, eu1), func(m *Membership) { m.Member.Name = "eu2" }), "its certificate for shard eu1"},
		"without the root shard":   {empty, changed(newMembership(t, root, eu1), func(m *Membership) { m.Root.URLs = nil }), "no URL of the root shard"},
		"with a URL of no use":     {empty, changed(newMembership(t, root, eu1), func(m *Membership) { m.Root.URLs = []string{"shard:6443"} }), "https://<host>:<port>"},
		"of a later version":       {empty, changed(newMembership(t, root, eu1), func(m *Membership) { m.APIVersion = "regent.dev/v9" }), "this version"},
	} {
		t.Run(name, func(t *testing.T) {
			directory := test.directory(t)
			if err := Join(directory, test.membership); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// I15: a membership with what this version does not know is refused, since it may decide whom to trust.
func TestAMembershipOfANewerVersionIsRefusedI15(t *testing.T) {
	m := newMembership(t, ensure(t, newDirectory(t)), eu1)
	file := filepath.Join(newDirectory(t), "membership.yaml")
	for added, says := range map[string]string{
		"":                               "",
		"later: true\n":                  `unknown field "later"`,
		"apiVersion: regent.dev/v9\n":    "already set",
		"certificateAuthority: nobody\n": "already set",
	} {
		content, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(content, added...), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadMembership(file); (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("with %q: %v, want an error with %q", added, err, says)
		}
	}
}

func changed(m *Membership, change func(*Membership)) *Membership {
	change(m)
	return m
}

func newMembershipKey(t *testing.T, b *Bundle) string { return newMembership(t, b, eu1).Key }

func TestTheRootShardIsFoundWhereverItsMembershipOrItsShardObjectSays(t *testing.T) {
	root := RootShard{Name: "root", URLs: []string{"https://a", "https://b"}}
	for name, tc := range map[string]struct {
		shard      string
		urls, want []string
	}{
		"the root shard, as it was":     {"root", []string{"https://b"}, []string{"https://b", "https://a"}},
		"the root shard, which moved":   {"root", []string{"https://c"}, []string{"https://c", "https://a", "https://b"}},
		"the root shard, nothing known": {"root", nil, []string{"https://a", "https://b"}},
		"another shard":                 {"eu1", []string{"https://c"}, []string{"https://c"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := root.ReplicasOf(tc.shard, tc.urls); !slices.Equal(got, tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}
