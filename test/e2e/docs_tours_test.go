package e2e

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tour is what a reader types, in this order, beside a `regent dev` of its own.
type tour struct {
	name  string
	flags []string // of regent dev
	ports int
	// pages are the beginnings of the names of the blocks that are run.
	pages []string
	// fails are commands that have to fail.
	fails []string
	// enter are blocks before which Enter is pressed at regent dev.
	enter []string
	// background are blocks that run until the page ends, or the tour.
	background []string
	// again are blocks at which regent dev is started again, with a flag of its replicas.
	again map[string]string
}

// tours have every command of the documentation that is not in notRun. Servers are shared by as much as can be typed
// one after the other.
var tours = []tour{
	{name: "the first five minutes", ports: 3, pages: []string{"README.md ## Five minutes"}},
	{
		name: "the tutorial", ports: 3, pages: []string{"docs/START.md"},
		enter:      []string{"docs/START.md ## 5."},
		background: []string{"docs/START.md ## 6. Find the controller that does not work: bin/faulty"},
	},
	{
		name: "the commands of operators", ports: 3,
		pages: []string{"docs/UI.md", "docs/CLI.md", "docs/BUNDLES.md", "docs/CUSTOM-RESOURCES.md", "docs/PROVIDE.md", "docs/OPERATIONS.md", "docs/UPGRADE.md", "docs/ELECTION.md ## Coordinated", "docs/reference/events.md", "docs/reference/alerts.md"},
	},
	{
		name: "users", ports: 3, pages: []string{"docs/ACCESS.md", "docs/TENANCY.md", "docs/CERTIFICATES.md", "docs/INSTALL.md ## The keys"},
		fails: []string{
			"kubectl --context=bob-team-a auth can-i delete configmaps", // kubectl's way to say no
			"kubectl --context=bob-team-a auth can-i create clusterroles.rbac.authorization.k8s.io",
			"kubectl --context=dora-team-a delete configmap hello",
		},
		background: []string{"docs/ACCESS.md ### OpenID Connect: bin/issuer"},
		again:      map[string]string{"docs/ACCESS.md ### OpenID Connect: make run": "--authentication-config=$PWD/authentication.yaml"},
	},
	{name: "many shards", ports: 9, flags: []string{"--shards=3"}, pages: []string{"docs/OPERATIONS.md (in the text): regent shard", "docs/reference/alerts.md (in the text): regent shard", "docs/BACKUP.md ## An installation", "docs/UPGRADE.md ## An installation"}},
	{
		name: "a backup", ports: 3, pages: []string{"docs/BACKUP.md ## Each workspace, to the second"},
		background: []string{"docs/BACKUP.md ## Each workspace, to the second: regent backup run"},
		again:      map[string]string{"docs/BACKUP.md ## Each workspace, to the second: make run": "--backup-recipients=$(cat backup.pub)"},
	},
	{
		name: "a second shard and a front", ports: 3, pages: []string{"docs/SHARDS.md"},
		background: []string{"docs/SHARDS.md ## Setting it up: regent start", "docs/SHARDS.md ### The front"},
	},
}

// Reasons why a command is not run.
const (
	startsDev   = "it is what the tours are beside: each starts `regent dev` in a directory and on ports of its own"
	takesLong   = "it measures for minutes or hours"
	onRoot      = "it installs into the system, as root"
	onCluster   = "it needs a cluster of Kubernetes and a registry of images; test/deploy renders the chart, runs the image and checks flags"
	notACommand = "it is spoken of, and not to be typed as it stands"
)

// notRun are the commands that no tour runs, by the beginnings of their names, with the reason.
var notRun = map[string]string{
	"README.md ## Two commands":                                        startsDev + "; `make test` is who runs them",
	"docs/START.md ## 7. Next steps":                                   "they need an etcd and ports of their own: TestTwoReplicasOneLeadsAndBothServe starts servers so",
	"docs/START.md ## 1. Start a shard":                                startsDev,
	"docs/START.md ## 6. Find the controller that does not work: make": "all tests share one build of it",
	"docs/START.md ## 8. Stop":                                         "it removes what other tests run; each tour ends with Ctrl-C",
	"docs/ACCESS.md ### OpenID Connect: make run":                      startsDev + ", and the one of this page is started again here",
	"docs/CERTIFICATES.md ## Users by certificate: make":               startsDev,
	"docs/ACCESS.md ## Audit":                                          "it needs another regent dev, and a term's number of its log",
	"docs/CERTIFICATES.md ## Roll the authority of an installation":    "TestTheAuthorityOfAnInstallationIsRolledWithClientsConnected types it",
	"docs/BENCHMARKS.md":                                               takesLong,
	"docs/CONFORMANCE.md":                                              takesLong,
	"docs/RELEASING.md":                                                takesLong,
	"docs/REGENTTEST.md":                                               "it is for a directory outside of the source; the test that it shows is one of pkg/regenttest",
	"docs/TESTS.md":                                                    "it is what runs the tests",
	"docs/PROVIDE.md ## A controller in a workspace":                   "TestAControllerOfKubebuilderWorksWhileItsServerComesAndGoes builds it, and types the same",
	"docs/EMBED.md ## The shortest program":                            "it compiles, and waits to be killed: `make check` compiles it, and TestTheExampleLeadsWithExactlyTheRightsOfItsManifests kills its longer form",
	"docs/ELECTION.md ## Coordinated: regent start":                    "TestReplicasAreRolledFromEachModeToEachOther starts servers so",
	"docs/ELECTION.md ## For life":                                     "TestALeaderForLifeThatIsCutOffIsWaitedForUntilAnOperatorForgetsIt types it, when there is a replica to forget",
	"docs/FAILOVER.md ## Handover":                                     "the tutorial types it, and OPERATIONS.md the form for kubectl without a name",
	"docs/INSTALL.md ## With systemd":                                  onRoot,
	"docs/INSTALL.md ### A backup as a service":                        onRoot,
	"docs/INSTALL.md ## The image":                                     onCluster,
	"docs/INSTALL.md ## With Helm":                                     onCluster,
	"docs/INSTALL.md ### An installation":                              onCluster,
	"docs/INSTALL.md ### The keys of pods":                             onCluster + ", and rolls an authority between two pods",
	"docs/BUNDLES.md ## Export: age-keygen":                            "age-keygen is not here; TestAWorkspaceIsExportedImportedAndCloned types the rest with a key of its own",
	"docs/BACKUP.md ## Each workspace, to the second: make run":        startsDev + ", and the one of this page is started again here",
	"docs/BACKUP.md ### A whole shard":                                 "TestAShardIsLoadedIntoAnEmptyEtcd does it, with two etcds",
	"docs/BACKUP.md ### In an object store":                            "TestABackupOutlivesItsDirectoryInAStore does it",
	"docs/BACKUP.md ## The tools":                                      "all tests share one build of them",
	"docs/BACKUP.md ### Back up the embedded etcd":                     "TestABackupOfTheEmbeddedEtcdIsRestoredAsDocumented types it",
	"docs/BACKUP.md ### Restore the embedded etcd":                     "TestABackupOfTheEmbeddedEtcdIsRestoredAsDocumented types it",
	"docs/BACKUP.md ### Back up an etcd of one's own":                  "TestABackupOfAnEtcdOfOnesOwnIsRestoredAsDocumented types it",
	"docs/MOVING.md ## After a restore":                                "TestAWorkspaceIsOnOneShardAfterARestoreI16 types it, after a restore",
	"docs/BACKUP.md ### Restore an etcd of one's own":                  "TestABackupOfAnEtcdOfOnesOwnIsRestoredAsDocumented types it",
	"docs/OPERATIONS.md ## What is stored and is no object":            "it needs an etcd without TLS in which somebody has broken an object",
	"docs/OPERATIONS.md (in the text): regent forget-replica":          "TestALeaderForLifeThatIsCutOffIsWaitedForUntilAnOperatorForgetsIt types it",
	"docs/reference/alerts.md (in the text): regent forget-replica":    "TestALeaderForLifeThatIsCutOffIsWaitedForUntilAnOperatorForgetsIt types it",
	"docs/OPERATIONS.md (in the text): regent dev":                     notACommand,
	"docs/OPERATIONS.md (in the text): regent start":                   notACommand,
	"docs/reference/alerts.md (in the text): regent pki roll":          notACommand + ": CERTIFICATES.md has its steps, and TestTheAuthorityIsRolledWithClientsConnected types them",
	"docs/reference/alerts.md (in the text): regent front add":         notACommand + ": TestTheAuthorityOfAnInstallationIsRolledWithClientsConnected types it",
	"docs/OPERATIONS.md (in the text): kubectl create -f":              notACommand,
	"docs/SHARDS.md ## How a workspace gets its cluster":               "TestClustersOutliveTheRestoreOfTheirParentsShardI10 types it, when there is an orphan",
	"docs/SHARDS.md ## Trying it on one machine":                       startsDev,
	"docs/SHARDS.md ### On three machines":                             "it needs three machines",
}

// otherAnswers are blocks that are run, and whose answers have another form than the page shows, but for headings of
// tables.
var otherAnswers = map[string]string{
	"docs/CLI.md ## status: regent status": "nobody was killed a second ago. The tutorial shows the same",
	"docs/CLI.md ## controllers":           "no controller hangs",
	"docs/CLI.md ## terms":                 "the terms of a test are not those of a week",
	"docs/CLI.md ## top":                   "there is no load",
}

// reason returns why a block is in a table: the entry with the longest beginning of its name counts.
func reason(table map[string]string, b block) (why, entry string) {
	for beginning, because := range table {
		if strings.HasPrefix(b.String(), beginning) && len(beginning) > len(entry) {
			why, entry = because, beginning
		}
	}
	return why, entry
}

// readBy returns the tour that a block belongs to, and the entry in its pages: the longest that the block's name begins
// with.
func readBy(b block) (name, page string) {
	for _, tour := range tours {
		for _, entry := range tour.pages {
			if strings.HasPrefix(b.String(), entry) && len(entry) > len(page) {
				name, page = tour.name, entry
			}
		}
	}
	return name, page
}

func isOneOf(beginnings []string, b block) (string, bool) {
	for _, beginning := range beginnings {
		if strings.HasPrefix(b.String(), beginning) {
			return beginning, true
		}
	}
	return "", false
}

// testNamed finds the tests that reasons name.
var testNamed = regexp.MustCompile(`Test[A-Z]\w+`)

// Whoever writes a command into the documentation has it run by a test, or says here why it is not. No entry outlives
// what it is about.
func TestEveryCommandInTheDocsIsRunOrListed(t *testing.T) {
	t.Parallel()
	used, tests := map[string]bool{}, testsHere(t)
	for _, b := range documented(t) {
		_, page := readBy(b)
		used[page] = true
		for _, tour := range tours {
			for _, some := range [][]string{tour.enter, tour.background, slices.Collect(maps.Keys(tour.again))} {
				if entry, ok := isOneOf(some, b); ok {
					used[entry] = true
				}
			}
		}
		because, entry := reason(notRun, b)
		_, shown := reason(otherAnswers, b)
		used[entry], used[shown] = true, true
		if b.isTyped() && page == "" && because == "" {
			t.Errorf("%s: nothing runs it: add it to a tour, or to notRun with the reason", b)
		}
	}
	for _, tour := range tours {
		for _, entry := range slices.Concat(tour.pages, tour.enter, tour.background, slices.Collect(maps.Keys(tour.again))) {
			if !used[entry] {
				t.Errorf("tour %q: there is no %q in the documentation", tour.name, entry)
			}
		}
	}
	for _, table := range []map[string]string{notRun, otherAnswers} {
		for entry, because := range table {
			if !used[entry] {
				t.Errorf("there is no %q in the documentation", entry)
			}
			for _, name := range testNamed.FindAllString(because, -1) {
				if !strings.Contains(tests, "\nfunc "+name+"(") {
					t.Errorf("%q: there is no %s", entry, name)
				}
			}
		}
	}
}

// testsHere returns the code of this package's tests.
func testsHere(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(content)
	}
	return code.String()
}
