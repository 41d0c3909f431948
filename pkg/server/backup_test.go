package server

import (
	"bufio"
	"bytes"
	"context"
	"strconv"
	"testing"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/backup"
	"github.com/regent-project/regent/pkg/server/status"
)

// asksForBackup returns the answer to a user who asks for a frame, in a cluster.
func (s *society) asksForBackup(who, cluster string, query ...string) ([]byte, error) {
	s.Helper()
	return s.asksFor(status.BackupPath, who, cluster, query...)
}

// opened returns the records of an answer.
func opened(t *testing.T, answer []byte, key age.Identity) (head backup.Head, all []backup.Record) {
	t.Helper()
	_, text, _ := bytes.Cut(answer, []byte{'\n'})
	head, frame, err := backup.ReadFrame(bufio.NewReader(bytes.NewReader(text)))
	if err != nil {
		t.Fatal(err)
	}
	frames, _, err := backup.ReadHeads(bytes.NewReader(frame), int64(len(frame)))
	if err != nil || len(frames) != 1 {
		t.Fatalf("%d frames, %v", len(frames), err)
	}
	if err := frames[0].Read(bytes.NewReader(frame), []age.Identity{key}, nil, func(r backup.Record) error { all = append(all, r); return nil }); err != nil {
		t.Fatal(err)
	}
	return head, all
}

// The backup is of all tenants. Only whom the operator lets do it has it, and that right is none to read an object.
func TestABackupIsForWhoMayGetItAndForItsRecipientsToRead(t *testing.T) {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	s := startSociety(t, func(srv *Server) { srv.cfg.BackupRecipients = []string{key.Recipient().String()} })
	team, admin := s.founds("ann", "team"), clusters.SystemAdmin.String()
	boss := s.as("boss", admin)
	if _, err := boss.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "backup"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{status.BackupPath}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := boss.RbacV1().ClusterRoleBindings().Create(t.Context(), toUser("backup", "backup", "bob"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "bob has the right", func(context.Context) error {
		_, err := s.asksForBackup("bob", admin, "of", "changes")
		return err
	})
	for _, place := range []string{team, "root", admin} {
		_, err := s.asksForBackup("ann", place, "of", "base")
		s.refused("ann asks for the backup in "+place, err)
	}
	_, err = s.as("bob", team).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
	s.refused("bob lists secrets", err)

	first, err := s.asksForBackup("bob", admin, "of", "changes")
	if err != nil {
		t.Fatal(err)
	}
	began, none := opened(t, first, key)
	if len(none) != 0 || began.After != began.Revision || began.Shard == "" || began.Etcd == 0 || began.Raft == 0 || began.Time.IsZero() {
		t.Errorf("the first frame: %+v with %d records", began, len(none))
	}
	ann := s.as("ann", team)
	if _, err := ann.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "key"}, StringData: map[string]string{"k": "hidden"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := ann.CoreV1().Secrets("default").Delete(t.Context(), "key", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, query := range [][]string{{"of", "base"}, {"of", "changes", "after", strconv.FormatInt(began.Revision, 10)}} {
		answer, err := s.asksForBackup("bob", admin, query...)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(answer, []byte("hidden")) || bytes.Contains(answer, []byte("aGlkZGVu")) || bytes.Contains(answer, []byte(`"key"`)) {
			t.Errorf("%q: it can be read", query)
		}
		head, records := opened(t, answer, key)
		var of []backup.Record
		for _, r := range records {
			if r.Key == "core/secrets/default/key" {
				of = append(of, r)
			}
		}
		if query[1] == "base" {
			if len(of) != 0 || len(records) == 0 || head.More {
				t.Errorf("base: %+v, and %d records", of, len(records))
			}
			continue
		}
		if len(of) != 2 || of[0].Gone || !of[0].Secret || !bytes.Contains(of[0].Object.Object, []byte("aGlkZGVu")) || !of[1].Gone || of[0].Cluster != of[1].Cluster || of[1].Revision <= of[0].Revision {
			t.Errorf("changes: %+v", of)
		}
	}
	for _, query := range [][]string{{"of", "all"}, {"of", "changes", "after", "x"}, {"of", "changes", "after", "-1"}, {}} {
		if _, err := s.asksForBackup("boss", admin, query...); err == nil {
			t.Errorf("%q is answered", query)
		}
	}
	if _, err := s.asksForBackup("boss", admin, "of", "changes", "after", "1000000000"); err == nil {
		t.Error("changes behind a revision that etcd never had are answered")
	}
}

func TestAShardWithoutRecipientsGivesNoBackup(t *testing.T) {
	s := startSociety(t)
	if _, err := s.asksForBackup("boss", clusters.SystemAdmin.String(), "of", "changes"); err == nil || !bytes.Contains([]byte(err.Error()), []byte("--backup-recipients")) {
		t.Errorf("%v, want what to do", err)
	}
}
