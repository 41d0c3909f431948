package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/flagz"
	cliflag "k8s.io/component-base/cli/flag"
)

// referencePath is a row of a table of docs/reference/api.md.
type referencePath struct{ path, verb, who string }

// covers reports whether the row is about a path.
func (p referencePath) covers(path string) bool {
	below, all := strings.CutSuffix(p.path, "/...")
	return path == below || all && strings.HasPrefix(path, below+"/")
}

// one returns a path that the row is about.
func (p referencePath) one() string {
	switch path := strings.TrimSuffix(p.path, "/..."); path {
	case "/debug":
		return "/debug/pprof/heap"
	case "/ui":
		return "/ui/"
	default:
		return path
	}
}

// referencePaths returns the paths that a section of docs/reference/api.md lists.
func referencePaths(t *testing.T, section string) (out []referencePath) {
	t.Helper()
	page, err := os.ReadFile("../../docs/reference/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## "+section)
	table, _, _ = strings.Cut(table, "\n## ")
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.*?) \\| .* \\| (.*?) \\|$").FindAllStringSubmatch(table, -1) {
		out = append(out, referencePath{row[1], row[2], row[3]})
	}
	return out
}

func TestTheReferenceSaysWhichPathsThereAreAndWhoMay(t *testing.T) {
	key, err := age.GenerateX25519Identity() // without a recipient a backup is not found
	if err != nil {
		t.Fatal(err)
	}
	s := startSociety(t, func(s *Server) {
		s.cfg.BackupRecipients = []string{key.Recipient().String()}
		s.cfg.Profiling, s.generic.Flagz = true, flagz.NamedFlagSetsReader{FlagSets: cliflag.NamedFlagSets{}}
	})
	listed, within := referencePaths(t, "Paths of a replica"), referencePaths(t, "Paths in a logical cluster")
	if len(listed) < 10 || len(within) == 0 {
		t.Fatalf("only %d and %d paths are listed", len(listed), len(within))
	}
	var index metav1.RootPaths
	answer := s.at.ask(t, http.MethodGet, "/clusters/root/", s.at.server.identity.InProcess.Replica)
	if err := json.Unmarshal([]byte(answer.body), &index); err != nil || len(index.Paths) < 10 {
		t.Fatalf("%d %s: %v", answer.status, answer.body, err)
	}
	ofClusters := regexp.MustCompile(`^/(apis?|openapi|\.well-known)?(/|$)`)
	for _, path := range index.Paths {
		if !ofClusters.MatchString(path) && !slices.ContainsFunc(listed, func(p referencePath) bool { return p.covers(path) }) &&
			!slices.ContainsFunc(within, func(p referencePath) bool { return p.path == "/clusters/<path>"+path }) {
			t.Errorf("%s is served, and docs/reference/api.md does not say who may", path)
		}
	}
	eve := s.as("eve", "").Discovery().RESTClient()
	asks := func(ctx context.Context, p referencePath) error {
		verb, _, _ := strings.Cut(p.verb, ",")
		return eve.Verb(strings.ToUpper(verb)).AbsPath(p.one()).Do(ctx).Error()
	}
	for _, p := range listed {
		public := p.who == "anybody"
		if got := s.at.get(t, p.one()); public != (got == http.StatusOK) || !public && got != http.StatusUnauthorized && p.verb == "get" {
			t.Errorf("%s, to a stranger: %d", p.path, got)
		}
		if err := asks(t.Context(), p); public && err != nil || !public && !apierrors.IsForbidden(err) {
			t.Errorf("%s, to a user without rights: %v", p.path, err)
		}
	}
	if _, err := s.at.adminIn(t, "system:admin").RbacV1().ClusterRoleBindings().Create(t.Context(), toUser("eve", "cluster-admin", "eve"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, p := range listed {
		eventually(t, p.path+" is answered to a user with a binding", func(ctx context.Context) error {
			if err := asks(ctx, p); apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				return fmt.Errorf("it is not: %w", err)
			}
			return nil
		})
	}
}
