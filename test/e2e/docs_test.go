package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/test/e2e/harness"
)

// What the documentation has readers type works, and is answered as the documentation shows.
func TestTheCommandsInTheDocsWork(t *testing.T) {
	t.Parallel()
	blocks := documented(t)
	for _, tour := range tours {
		t.Run(tour.name, func(t *testing.T) {
			t.Parallel()
			r := newReader(t, tour)
			for _, beginning := range tour.pages {
				for _, b := range blocks {
					if of, by := readBy(b); of == tour.name && by == beginning {
						r.read(b)
					}
				}
				r.endBackground()
			}
			if after := afterwards[tour.name]; after != nil {
				after(t, r.dev)
			}
			r.dev.stop()
		})
	}
}

// afterwards is what else must be so at the end of a tour.
var afterwards = map[string]func(*testing.T, *devShard){
	// The user whom the page lets in can be put out; what users add to the kubeconfig outlives a restart.
	"users": func(t *testing.T, d *devShard) {
		t.Helper()
		d.kubectl("", "--context=ann-team-a", "delete", "clusterrolebinding", "bob-enters")
		// A replica goes by its cache, which the deletion has to reach.
		harness.Eventually(t, "bob is told to be out", func() bool {
			out, err := d.run("kubectl", "", "--context=bob-team-a", "get", "configmaps")
			return err != nil && strings.Contains(out, "system:kcp:workspace:access")
		})
		d.stop()
		d.start()
		d.kubectl("", "--context=ann-team-a", "get", "configmap", "hello")
	},
}

// reader types what a tour has, in a directory that looks to it like a clone in which `make run` runs.
type reader struct {
	t     *testing.T
	tour  tour
	dev   *devShard
	clone string
	port  int      // the first of dev's
	ports []int    // for servers that the reader starts
	told  []string // what programs have said
	ends  []func() // of what runs in the background
}

func newReader(t *testing.T, tour tour) *reader {
	t.Helper()
	faulty, tools, issuer := harness.Program(t, "faulty"), harness.Program(t, "etcdctl"), harness.Program(t, "issuer")
	r := &reader{t: t, tour: tour, dev: startDev(t, tour.ports, tour.flags...), clone: t.TempDir(), ports: harness.FreePorts(t, 3)}
	for name, file := range map[string]string{
		".regent": r.dev.root, "bin/regent": harness.Binary("regent"), "bin/kubectl": harness.Binary("kubectl"), "bin/faulty": faulty,
		"bin/etcdctl": tools, "bin/etcdutl": tools, "bin/issuer": issuer,
	} {
		link := filepath.Join(r.clone, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(file, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, flag := range r.dev.flags {
		if port, ok := strings.CutPrefix(flag, "--secure-port="); ok {
			r.port, _ = strconv.Atoi(port)
		}
	}
	t.Cleanup(r.endBackground)
	return r
}

// read does what a reader does at a block.
func (r *reader) read(b block) {
	r.t.Helper()
	if entry, ok := isOneOf(r.tour.enter, b); ok && !slices.Contains(r.told, entry) {
		r.told = append(r.told, entry)
		r.pressEnter()
	}
	if entry, ok := isOneOf(slices.Collect(maps.Keys(r.tour.again)), b); ok {
		r.again(r.tour.again[entry])
	}
	because, _ := reason(notRun, b)
	_, endless := isOneOf(r.tour.background, b)
	switch {
	case b.file != "":
		r.write(b)
	case b.language == "text" && because == "":
		harness.Eventually(r.t, fmt.Sprintf("regent dev says what %s shows", b), func() bool { return unlike(strings.Split(b.text, "\n"), r.dev.text()) == "" })
	case !b.isTyped() || because != "":
	case strings.Contains(b.text, "| jq ") && !installed("jq"):
		r.t.Logf("%s: not typed, since jq is not installed: .ci/run installs it", b)
	case endless:
		r.inBackground(b)
	default:
		r.run(b)
	}
}

func installed(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// again starts regent dev again, with a flag of its replicas more.
func (r *reader) again(flag string) {
	r.t.Helper()
	r.dev.stop()
	r.dev.flags = append(r.dev.flags, "--", strings.TrimSpace(r.typed(`echo "`+flag+`"`)))
	r.dev.start()
}

// write writes a block to the file into which it is to be put.
func (r *reader) write(b block) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.clone, b.file), []byte(r.here(b.text)), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// run types a block, command by command, and compares the answers. A question is asked again until the answer is as
// shown.
func (r *reader) run(b block) {
	r.t.Helper()
	because, _ := reason(otherAnswers, b)
	for _, step := range b.steps() {
		if because != "" {
			step.answers = slices.DeleteFunc(step.answers, func(line string) bool { return line != strings.ToUpper(line) })
		}
		for began := time.Now(); ; {
			said := r.typed(step.script)
			different := unlike(step.answers, said)
			if different == "" {
				break
			}
			if !asks.MatchString(step.script) || time.Since(began) > harness.Patience/4 {
				r.t.Fatalf("%s: no answer is like %q:\n%s", b, different, said)
			}
			time.Sleep(asksAgain)
		}
	}
}

// asksAgain is the pause between two questions.
const asksAgain = 300 * time.Millisecond

// asks matches what may be typed again, because it only asks.
var asks = regexp.MustCompile(`^(?:(?:bin/)?regent (?:status|terms|controllers|top|shard list)|kubectl (?:--\S+ \S+ )?get )[^\n]*\n$`)

// typed types a script, and returns what was said. Nothing may fail but what the tour says.
func (r *reader) typed(script string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), harness.Patience)
	defer cancel()
	out, err := r.command(ctx, script).CombinedOutput()
	said := string(out)
	if ctx.Err() != nil {
		r.t.Fatalf("%s has not ended after %v:\n%s", script, harness.Patience, said)
	}
	failed := regexp.MustCompile(`(?m)^FAILED: (.*)\n`)
	for _, command := range failed.FindAllStringSubmatch(said, -1) {
		if !slices.Contains(r.tour.fails, command[1]) {
			r.t.Fatalf("%s failed:\n%s", command[1], said)
		}
	}
	if exit := (&exec.ExitError{}); err != nil && (!errors.As(err, &exit) || !failed.MatchString(said) && !slices.Contains(foundProblems, exit.ExitCode())) {
		r.t.Fatalf("%s: %v\n%s", script, err, said)
	}
	return failed.ReplaceAllString(said, "")
}

// foundProblems are the exit codes by which regent says that something is wrong with the shard, and not with the
// question.
var foundProblems = []int{3, 4}

// command is a shell that runs a script, and goes on after what fails.
func (r *reader) command(ctx context.Context, script string) *exec.Cmd {
	r.t.Helper()
	const begin = `set -E; trap 'code=$?; [[ $code == [34] && ( $BASH_COMMAND == *regent* || $BASH_COMMAND == timeout* ) ]] || echo "FAILED: $BASH_COMMAND"' ERR; shopt -s expand_aliases
interrupted() { timeout --signal=INT --preserve-status 3 "$@"; }
`
	cmd := exec.CommandContext(ctx, "bash", "-c", begin+r.here(script))
	cmd.Dir = r.clone
	cmd.Env = append(os.Environ(), "HOME="+r.clone, "KUBECONFIG="+filepath.Join(r.clone, ".regent/admin.kubeconfig"), "PATH="+filepath.Join(r.clone, "bin")+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // with what it waits for
	return cmd
}

// here returns what a script comes to on this machine: its addresses, names and process ids are those of whoever wrote
// it.
func (r *reader) here(script string) string {
	r.t.Helper()
	replace := func(what, by string) { script = regexp.MustCompile(what).ReplaceAllString(script, by) }
	url := func(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
	replace(`127\.0\.0\.1:6443`, url(r.port))
	replace(`10\.0\.0\.1:6443`, url(r.port+1))
	replace(`10\.0\.0\.2:6443`, url(r.port+2))
	replace(`10\.0\.1\.[12]:6443`, url(r.ports[0]))
	replace(`=\.\.\./`, "="+r.clone+"/")
	replace(`--etcd-servers=\.\.\.`, "--root-directory=other")
	replace(`0\.0\.0\.0 --secure-port=6443`, "127.0.0.1 --secure-port="+strconv.Itoa(r.ports[map[bool]int{true: 1}[strings.Contains(script, "regent front")]]))
	replace(`127\.0\.0\.1:6470`, url(r.ports[2]))
	replace(`--secure-port=6460`, "--secure-port="+strconv.Itoa(r.ports[2]))
	replace(`/var/lib/regent/f1.json`, "f1.json")
	replace(`shard=eu1'`, "shard=root'")
	replace(`<directory>`, ".regent")
	replace(`<name>`, "workspace")
	replace(`<shard>`, "shard-1")
	replace(`((?:bin/)?regent (?:ui|status --watch))`, "interrupted $1")
	if strings.Contains(script, "kill -9 ") {
		_, pid := r.dev.leader()
		replace(`kill -9 \d+`, fmt.Sprintf("kill -9 %d", pid))
	}
	if regexp.MustCompile(`--to[ =]|"to":`).MatchString(script) {
		standby := r.newestStandby()
		replace(`--to([ =])(<[^>]*>|\S+)`, "--to${1}"+standby)
		replace(`"to": "[^"]*"`, `"to": "`+standby+`"`)
	}
	if strings.Contains(script, "--context replica-0") {
		replace(`--context replica-0`, "--context "+r.leadersContext())
	}
	return script
}

// shard returns how the shard is doing.
func (r *reader) shard() status.Shard {
	r.t.Helper()
	var all status.Installation
	out, err := exec.Command(harness.Binary("regent"), "status", "-o=json", "--kubeconfig="+filepath.Join(r.dev.root, "admin.kubeconfig")).Output()
	if jsonErr := json.Unmarshal(out, &all); jsonErr != nil || len(all.Shards) == 0 {
		r.t.Fatalf("regent status: %v, %v:\n%s", err, jsonErr, out)
	}
	return all.Shards[0]
}

// newestStandby returns the standby that has started last, once all of them follow the leader.
func (r *reader) newestStandby() (name string) {
	r.t.Helper()
	harness.Eventually(r.t, "all standbys follow the leader", func() bool {
		var started time.Time
		following := 0
		shard := r.shard()
		for _, replica := range shard.Replicas {
			contact := replica.Election.Contact // of a leader it is that of the time before
			if replica.Fault != "" || replica.Election.State == "leading" || replica.Name == shard.Leader || contact == nil || contact.State != "alive" {
				continue
			}
			if following++; replica.Started.After(started) {
				started, name = replica.Started, replica.Name
			}
		}
		return following == 1+len(r.ends)
	})
	return name
}

// leadersContext returns the context that leads to the leader, which must be one of dev's replicas.
func (r *reader) leadersContext() (name string) {
	r.t.Helper()
	harness.Eventually(r.t, "one of dev's replicas leads", func() bool {
		shard := r.shard()
		for _, replica := range shard.Replicas {
			for n := range 2 {
				if replica.Name == shard.Leader && strings.HasSuffix(replica.URL, ":"+strconv.Itoa(r.port+1+n)) {
					name = fmt.Sprintf("replica-%d", n)
				}
			}
		}
		return name != ""
	})
	return name
}

// pressEnter has dev start again what was killed.
func (r *reader) pressEnter() {
	r.t.Helper()
	harness.Eventually(r.t, "dev tells of the death", func() bool { return strings.Contains(r.dev.text(), "has ended: signal: killed") })
	if _, err := io.WriteString(r.dev.enter, "\n"); err != nil {
		r.t.Fatal(err)
	}
	harness.Eventually(r.t, "dev says that it is ready", func() bool { return strings.Contains(r.dev.text(), " is ready again, after ") })
}

// inBackground runs a block that ends when it is interrupted, and returns when its server serves.
func (r *reader) inBackground(b block) {
	r.t.Helper()
	cmd := r.command(r.t.Context(), b.text)
	log := filepath.Join(r.clone, fmt.Sprintf("background-%d.log", len(r.ends)))
	file, err := os.Create(log)
	if err != nil {
		r.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = file, file
	if err := errors.Join(cmd.Start(), file.Close()); err != nil {
		r.t.Fatal(err)
	}
	r.ends = append(r.ends, func() {
		if r.t.Failed() {
			content, _ := os.ReadFile(log)
			r.t.Logf("---- %s said:\n%s", b, content)
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
		_ = cmd.Wait() // it has failed, since it was interrupted
	})
	harness.Eventually(r.t, b.String()+" serves", func() bool {
		content, _ := os.ReadFile(log)
		return strings.Contains(string(content), "Serving") || strings.Contains(string(content), "The backup has a base")
	})
}

func (r *reader) endBackground() {
	for _, end := range r.ends {
		end()
	}
	r.ends = nil
}

// unlike returns the first line that nothing in what was said is like. A word with a digit or "..." may be any other,
// and so may a dash and ordinals. Spaces and the ends of lines do not count.
func unlike(lines []string, said string) string {
	flow := " " + strings.Join(strings.Fields(said), " ") + " "
	for _, line := range lines {
		var words []string
		for _, word := range strings.Fields(line) {
			if varies.MatchString(word) {
				words = append(words, `\S+`)
			} else {
				words = append(words, regexp.QuoteMeta(word))
			}
		}
		if !regexp.MustCompile(" " + strings.Join(words, " ") + " ").MatchString(flow) {
			return line
		}
	}
	return ""
}

var varies = regexp.MustCompile(`\d|\.\.\.|^(-|first|second|third|fourth|fifth|sixth)$`)
