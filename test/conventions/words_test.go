package conventions

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// participles are no names: a function is a verb, a type is a noun, and a result is what it is of. `asked` may be what
// was asked for, who was asked, or whether anybody was.
var participles = strings.Fields(`answered asked awaited began begun bound brought caught chosen counted done drawn felt forgotten found given gone
	got grown heard held hidden kept known lasted led left lent looked lost made meant met named said seen sent shown sought taken told wished woken written`)

// upstreams are methods that interfaces of others have.
var upstreams = []string{"Done"}

var (
	// he matches requests, users and clients that are called so.
	he = regexp.MustCompile(`\b([Hh]e|[Hh]is|[Hh]im|[Hh]imself|[Ss]he|[Hh]ers?|[Hh]erself)\b`)
	// heInAName matches the same in the name of a test.
	heInAName = regexp.MustCompile(`(He|His|Him|Himself)([A-Z]|$)`)
	// who matches a sentence that begins with Who.
	who = regexp.MustCompile(`(?:^|[.!?:]\s+|\n\s*)(Who\s[^.?!]*(?:[.?!]|$))`)
)

// wrongSentences returns what must not be in a comment or a string.
func wrongSentences(text string) (wrong []string) {
	for _, s := range who.FindAllStringSubmatch(text, -1) {
		if !strings.HasSuffix(s[1], "?") {
			wrong = append(wrong, fmt.Sprintf("%.50q: say of whom it is first: a sentence that begins with Who is a question", s[1]))
		}
	}
	if s := he.FindString(text); s != "" && strings.ContainsAny(strings.TrimSpace(text), " \n") {
		wrong = append(wrong, fmt.Sprintf("%q in %.50q: requests, users and clients are it, or they", s, text))
	}
	return wrong
}

// wrongName returns what is wrong with the name of a function, a type or a result.
func wrongName(name string) (wrong []string) {
	if slices.Contains(participles, strings.ToLower(name)) && !slices.Contains(upstreams, name) {
		wrong = append(wrong, name+": a participle is no name: functions are verbs, types are nouns")
	}
	if heInAName.MatchString(name) {
		wrong = append(wrong, name+": requests, users and clients are it, or they")
	}
	return wrong
}

// wrongWords calls report for all that is wrong with the words of a file.
func wrongWords(file *ast.File, report func(at token.Pos, wrong string)) {
	add := func(at token.Pos, wrong []string) {
		for _, w := range wrong {
			report(at, w)
		}
	}
	for _, group := range file.Comments {
		add(group.Pos(), wrongSentences(group.Text()))
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				add(literal.Pos(), wrongSentences(text))
			}
		}
		return true
	})
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(d.Pos(), wrongName(d.Name.Name))
			if d.Type.Results == nil {
				continue
			}
			for _, r := range d.Type.Results.List {
				for _, name := range r.Names {
					add(name.Pos(), wrongName(name.Name))
				}
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if named, ok := s.(*ast.TypeSpec); ok {
					add(named.Pos(), wrongName(named.Name.Name))
				}
			}
		}
	}
}

// A name or a sentence says at once what it is of, also to somebody who reads it for the first time.
func TestWordsSayWhatTheyAreOf(t *testing.T) {
	files, wrong := 0, map[string]bool{}
	err := filepath.WalkDir("../..", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", ".regent", "testdata"}, entry.Name()):
			return filepath.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasPrefix(entry.Name(), "zz_generated") || entry.Name() == "words_test.go":
			return nil
		}
		files++
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		short := filepath.ToSlash(strings.TrimPrefix(name, "../../"))
		wrongWords(parsed, func(at token.Pos, text string) {
			if wrong[short] = true; !slices.Contains(unmended, short) {
				t.Errorf("%s:%d: %s", short, set.Position(at).Line, text)
			}
		})
		return nil
	})
	if err != nil || files < 1000 {
		t.Fatalf("%d files: %v", files, err)
	}
	for _, name := range unmended {
		if !wrong[name] {
			t.Errorf("%s is mended, or gone: take it off the list", name)
		}
	}
}

func TestWrongWordsAreFound(t *testing.T) {
	for source, want := range map[string]int{
		"// Who asks waits.\nfunc f() {}":                     1,
		"// It is so. Who\n// asks, waits.\nfunc f() {}":      1,
		"// Who asks? It is not known who asks.\nfunc f() {}": 0,
		"// Whoever asks waits.\nfunc f() {}":                 0,
		"var s = \"Who leads is told\"":                       1,
		"var s = \"Who leads?\"":                              0,
		"// A client must not lose his place.\nfunc f() {}":   1,
		"var s = \"the user whom he knows\"":                  1,
		// a fragment, such as one of hexadecimal digits
		"var s = \"he\"":  0,
		"func asked() {}": 1,
		"func (t T) Told() (held, shown bool) { return }":       3,
		"type known struct{}":                                   1,
		"func (t T) Done() (closed bool) { return }":            0,
		"func f() { asked := 1; _ = asked }":                    0,
		"func TestNobodyIsToldBeforeHeAsks() {}":                1,
		"func TestTheHistoryOfAHeader() (err error) { return }": 0,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n\n"+source, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		var wrong []string
		wrongWords(file, func(_ token.Pos, text string) { wrong = append(wrong, text) })
		if len(wrong) != want {
			t.Errorf("%s: %q, want %d", source, wrong, want)
		}
	}
}

// unmended are files whose words are still to be mended. It only ever gets shorter.
var unmended = []string{
	"cmd/server/dev/balancer_test.go", "cmd/server/dev/banner.go", "cmd/server/dev/parent_linux_test.go",
	"cmd/server/face/ask/ask_test.go", "cmd/server/face/ask/metrics.go", "cmd/server/face/ask/stepdown.go",
	"cmd/server/face/page/page_test.go", "cmd/server/face/page/requests.go",
	"pkg/controllers/aggregation/controller.go", "pkg/controllers/aggregation/fill.go",
	"pkg/controllers/assignment/controller_test.go", "pkg/controllers/assignment/reconcile_test.go",
	"pkg/controllers/catalog/lateroles_test.go", "pkg/controllers/catalog/unmodified_test.go", "pkg/controllers/catalog/workspaces_test.go",
	"pkg/controllers/content/content_test.go",
	"pkg/controllers/definition/decide.go", "pkg/controllers/definition/holders.go", "pkg/controllers/definition/names.go",
	"pkg/controllers/definition/names_test.go",
	"pkg/controllers/garbagecollector/collect_test.go", "pkg/controllers/garbagecollector/unknown.go",
	"pkg/controllers/leasecandidate/decide.go", "pkg/controllers/leasecandidate/decide_test.go", "pkg/controllers/leasecandidate/memory.go",
	"pkg/controllers/logicalcluster/controller_test.go", "pkg/controllers/logicalcluster/empty.go",
	"pkg/controllers/logicalcluster/written.go",
	"pkg/controllers/named.go", "pkg/controllers/named_test.go", "pkg/controllers/shards.go",
	"pkg/controllers/workspace/adoption_test.go", "pkg/controllers/workspace/reconcile.go", "pkg/controllers/workspace/reconcile_test.go",
	"pkg/controllers/workspace/waiting.go",
	"pkg/election/candidacy.go",
	"pkg/election/clientgo/fenced_test.go",
	"pkg/election/control/embedded_test.go",
	"pkg/election/control/loop/fair.go", "pkg/election/control/loop/informer_test.go", "pkg/election/control/loop/lanes.go",
	"pkg/election/control/supervisor/child.go", "pkg/election/control/supervisor/joined_test.go", "pkg/election/control/supervisor/leader.go",
	"pkg/election/control/supervisor/standstill.go",
	"pkg/election/detect/follow.go", "pkg/election/detect/limit_test.go", "pkg/election/detect/relay_test.go",
	"pkg/election/detect/silence.go", "pkg/election/detect/witness.go",
	"pkg/election/detection_test.go",
	"pkg/election/electiontest/candidates.go", "pkg/election/electiontest/store.go",
	"pkg/election/elector.go",
	"pkg/election/etcdfence/client.go", "pkg/election/etcdfence/install.go", "pkg/election/etcdfence/refusal.go",
	"pkg/election/falsedeath_test.go",
	"pkg/election/fence/refusal_test.go", "pkg/election/fence/transport.go", "pkg/election/fence/transport_test.go",
	"pkg/election/heldlease.go",
	"pkg/election/internal/lease/observation.go", "pkg/election/internal/lease/past.go", "pkg/election/internal/lease/presence.go",
	"pkg/election/internal/lease/unread_test.go",
	"pkg/election/internal/programtest/job.go",
	"pkg/election/join/current.go", "pkg/election/join/look.go", "pkg/election/join/scope.go",
	"pkg/election/leader/proof.go",
	"pkg/election/perterm/borrowed_test.go", "pkg/election/perterm/cache.go", "pkg/election/perterm/cache_test.go",
	"pkg/election/perterm/left.go", "pkg/election/perterm/runnable.go",
	"pkg/election/plan.go", "pkg/election/plan_test.go", "pkg/election/property_test.go", "pkg/election/unelected.go",
	"pkg/election/waiting_test.go",
	"pkg/server/access/builtin.go", "pkg/server/access/cached.go", "pkg/server/access/cost_test.go", "pkg/server/access/escalation.go",
	"pkg/server/access/escalation_test.go", "pkg/server/access/model_test.go", "pkg/server/access/policy.go", "pkg/server/access/requester.go",
	"pkg/server/access/requester_test.go", "pkg/server/access/rights.go",
	"pkg/server/access_test.go", "pkg/server/accessbench_test.go",
	"pkg/server/authentication/issuertest/issuer.go",
	"pkg/server/bindings_test.go", "pkg/server/chain_test.go",
	"pkg/server/custom/bound.go", "pkg/server/custom/converters.go", "pkg/server/custom/isolation_test.go", "pkg/server/custom/kept.go",
	"pkg/server/custom/openapiv2.go", "pkg/server/custom/recent.go", "pkg/server/custom/recent_test.go", "pkg/server/custom/select_test.go",
	"pkg/server/custom/selectable.go", "pkg/server/custom/server_test.go", "pkg/server/custom/shown.go", "pkg/server/custom/versions_test.go",
	"pkg/server/custom/view.go",
	"pkg/server/customs_test.go", "pkg/server/depth_test.go", "pkg/server/describe_test.go",
	"pkg/server/edge/counts.go", "pkg/server/edge/flows.go", "pkg/server/edge/guesses.go", "pkg/server/edge/impersonation.go",
	"pkg/server/edge/strangers_test.go", "pkg/server/edge/watches.go", "pkg/server/edge/watches_test.go", "pkg/server/edge/writelimits.go",
	"pkg/server/encryption/transformer.go",
	"pkg/server/escalation_test.go",
	"pkg/server/etcd/access_test.go", "pkg/server/etcd/etcd_test.go",
	"pkg/server/etcdcheck/shard.go",
	"pkg/server/fairness/control.go", "pkg/server/fairness/ledger_test.go", "pkg/server/fairness/limiter.go",
	"pkg/server/fairness/limiter_test.go", "pkg/server/fairness/metrics.go", "pkg/server/fairness/seat.go", "pkg/server/fairness/seat_test.go",
	"pkg/server/fairness/tally.go", "pkg/server/fairness/tally_test.go", "pkg/server/fairness/watchers_test.go",
	"pkg/server/fairness_test.go", "pkg/server/fencing_targets_test.go",
	"pkg/server/front/clients.go", "pkg/server/front/hostile_test.go", "pkg/server/front/limits.go", "pkg/server/front/resolve_test.go",
	"pkg/server/front/scrape_test.go", "pkg/server/front/shard.go",
	"pkg/server/heads_test.go",
	"pkg/server/history/told.go", "pkg/server/history/told_test.go",
	"pkg/server/impersonation_test.go",
	"pkg/server/installation/installation_test.go", "pkg/server/installation/orphans_test.go", "pkg/server/installation/remove.go",
	"pkg/server/isolation_test.go",
	"pkg/server/keys/keys.go", "pkg/server/keys/membership.go",
	"pkg/server/limits_test.go", "pkg/server/monitoring_test.go", "pkg/server/noescalation_test.go",
	"pkg/server/options/flags.go", "pkg/server/options/shown.go",
	"pkg/server/paths_fuzz_test.go",
	"pkg/server/pki/renew.go", "pkg/server/pki/roll.go",
	"pkg/server/recorder.go",
	"pkg/server/reload/reload.go",
	"pkg/server/reviews_test.go", "pkg/server/serviceaccounts_test.go",
	"pkg/server/shards/ask.go", "pkg/server/shards/homes_test.go", "pkg/server/shards/resume.go", "pkg/server/shards/resume_test.go",
	"pkg/server/shards/transport_test.go",
	"pkg/server/status/status.go", "pkg/server/status/top.go", "pkg/server/status/work.go",
	"pkg/server/storage/dispatch.go", "pkg/server/storage/dispatch_test.go", "pkg/server/storage/export_test.go",
	"pkg/server/storage/members_test.go", "pkg/server/storage/together_test.go", "pkg/server/storage/tries.go",
	"pkg/server/storage/tries_test.go",
	"pkg/server/survey/farewell.go", "pkg/server/survey/roster.go", "pkg/server/survey/survey.go",
	"pkg/server/tracing/tracing.go",
	"pkg/server/writelimits_test.go",
}
