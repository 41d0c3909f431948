package join

import (
	"bytes"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// sight is what a look at the goroutines of the process has shown.
type sight struct {
	number int64 // of the look
	cost   time.Duration
	groups []group // those of scopes
	// own is the path of the goroutine that took the look; empty if it is in no scope.
	own string
}

// group are goroutines with the same stack and labels.
type group struct {
	Goroutine
	path  string
	stack []string // the names of the functions, the one that they began with last
}

// looks are one after the other. A caller that asks while one is under way shares the next.
var looks struct {
	begun atomic.Int64
	sync.Mutex
	last *sight
}

// look returns what was there at a moment after it was called, and how long the look has taken.
func look() (*sight, time.Duration) {
	asked := looks.begun.Load()
	looks.Lock()
	defer looks.Unlock()
	if looks.last == nil || looks.last.number <= asked {
		looks.last = takeLook()
	}
	return looks.last, looks.last.cost
}

// lookAtSelf returns the path of the calling goroutine.
func lookAtSelf() string {
	looks.Lock()
	defer looks.Unlock()
	looks.last = takeLook()
	return looks.last.own
}

// takeLook is called by one goroutine at a time, so its own name on a stack says which one that is.
//
//go:noinline
func takeLook() *sight {
	began := time.Now()
	seen := &sight{number: looks.begun.Add(1)}
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		panic(err) // a buffer takes everything
	}
	_, records, _ := strings.Cut(profile.String(), "\n") // the first line says how many there are
	for record := range strings.SplitSeq(records, "\n\n") {
		path, ok := pathIn(record)
		if !ok {
			continue
		}
		g := group{path: path, stack: functions(record)}
		g.Function, g.Stack = beginning(g.stack), strings.TrimSpace(record)
		g.Labels = otherLabels(record)
		g.Number, _ = strconv.Atoi(strings.Fields(record)[0])
		if on(g.stack, ownName) {
			seen.own = path
		}
		seen.groups = append(seen.groups, g)
	}
	seen.cost = time.Since(began)
	return seen
}

const (
	ownPackage = "github.com/regent-project/regent/pkg/election/join"
	ownName    = ownPackage + ".takeLook"
)

// among returns the goroutines of a scope that it waits for.
func (s *Scope) among(at *sight) (running []Goroutine) {
	for _, g := range at.groups {
		if s.contains(g.path) && !leftAlone(g) && !on(g.stack, s.options.Leave...) {
			running = append(running, g.Goroutine)
		}
	}
	return running
}

// leftAlone reports whether no scope waits for goroutines.
func leftAlone(g group) bool {
	return on(g.stack, upstream...) || on([]string{g.Function}, upstreamClosures...)
}

// pathIn returns the value of the label in a text that shows labels as "key":"value" or "key": "value".
func pathIn(text string) (string, bool) {
	const key = `"` + label + `":`
	_, rest, ok := strings.Cut(text, key)
	if !ok {
		return "", false
	}
	_, rest, _ = strings.Cut(rest, `"`)
	path, _, ok := strings.Cut(rest, `"`)
	return path, ok
}

// functions returns the names in the lines of a record, which are "# address name+offset file:line".
func functions(record string) (names []string) {
	for line := range strings.Lines(record) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[0] != "#" || !strings.HasPrefix(fields[1], "0x") {
			continue
		}
		name := fields[2]
		if plus := strings.LastIndexByte(name, '+'); plus > 0 {
			name = name[:plus]
		}
		names = append(names, name)
	}
	return names
}

// otherLabels returns the labels of a record, except that of the scope.
func otherLabels(record string) string {
	_, labels, _ := strings.Cut(record, "# labels: {")
	labels, _, _ = strings.Cut(labels, "}\n")
	path, _ := pathIn(labels)
	own := strconv.Quote(label) + ":" + strconv.Quote(path)
	return strings.TrimSuffix(strings.TrimPrefix(strings.Replace(labels, own+", ", "", 1), own), ", "+own)
}

// beginning returns the function with which the goroutine of a stack began. The compiler, or a scope, may have put
// others around it.
func beginning(stack []string) string {
	last := len(stack) - 1
	if last < 0 {
		return "a goroutine that has not run yet"
	}
	for last > 0 && (strings.Contains(stack[last], ".gowrap") || on(stack[last:last+1], scaffold...)) {
		last--
	}
	return stack[last]
}

// scaffold is between the beginning of a goroutine and what a scope calls on it.
var scaffold = []string{
	ownPackage + ".(*Scope).start", ownPackage + ".(*Scope).do", ownPackage + ".contain", ownPackage + ".run", ownPackage + ".Run", ownPackage + ".Lead",
	ownPackage + ".Starting", ownPackage + ".(*Scope).undoAll", "runtime/pprof.Do",
}

// on reports whether one of the functions, or a closure in it, is on a stack.
func on(stack []string, functions ...string) bool {
	for _, called := range stack {
		for _, f := range functions {
			rest, ok := strings.CutPrefix(called, f)
			if ok && (rest == "" || strings.ContainsAny(rest[:1], ".[")) {
				return true
			}
		}
	}
	return false
}
