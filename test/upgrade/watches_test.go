package upgrade

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// watchers watch the tenants' ConfigMaps as reflectors do: on an end they go on from where they were, and only if that
// is too old they list anew.
type watchers struct {
	all     []*watcher
	stop    context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex
	ends map[string]int // by why
}

// watcher is one of them.
type watcher struct {
	tenant tenant
	url    string
	client *client

	mu    sync.Mutex
	spans []span
}

// span is what a watcher saw from a list on: the revisions of all events, in their order. last is how far it is.
type span struct {
	from, last int64
	seen       []int64
}

// perClient is how many watches a program has: as many streams as a server allows a connection.
const perClient = 100

func startWatchers(t *testing.T, config *rest.Config, url string, tenants []tenant, n int) *watchers {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ws := &watchers{stop: stop, ends: map[string]int{}}
	var c *client
	for i := range n {
		if i%perClient == 0 {
			c = newClient(t, config)
		}
		w := &watcher{tenant: tenants[i%len(tenants)], client: c}
		w.url = w.tenant.url(url)
		if err := w.list(ctx); err != nil {
			t.Fatal(err)
		}
		ws.all = append(ws.all, w)
		ws.running.Go(func() { ws.run(ctx, w) })
	}
	t.Cleanup(ws.finish)
	return ws
}

func (ws *watchers) finish() {
	ws.stop()
	ws.running.Wait()
}

// count counts an end, or a watch that did not begin.
func (ws *watchers) count(why string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.ends[varying.ReplaceAllString(why, "#")]++
}

// errTooOld is the end of a watch from a revision that nobody has any more.
var errTooOld = errors.New("too old")

// run watches until ctx ends. A watch that does not begin is tried again after a pause.
func (ws *watchers) run(ctx context.Context, w *watcher) {
	const pause = 100 * time.Millisecond
	for ctx.Err() == nil {
		open, err := w.watch(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case errors.Is(err, errTooOld):
			ws.count(fmt.Sprintf("a list was needed: %v", err))
			for ctx.Err() == nil && w.list(ctx) != nil {
				wait(ctx, pause)
			}
		case !open:
			ws.count(fmt.Sprintf("not begun: %v", err))
			wait(ctx, pause)
		default:
			ws.count(fmt.Sprintf("ended: %v", err))
		}
	}
}

func wait(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}

func (w *watcher) list(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	status, answer, err := w.client.do(ctx, http.MethodGet, w.url, nil)
	if err := faultOf(status, answer, err); err != nil {
		return err
	}
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return err
	}
	revision, err := strconv.ParseInt(list.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spans = append(w.spans, span{from: revision, last: revision})
	return nil
}

// event is one of a watch, as far as it matters here.
type event struct {
	Type   string
	Object struct {
		Metadata        struct{ ResourceVersion string }
		Code            int
		Reason, Message string
	}
}

// watch watches once, and returns why that ended, and whether it was open.
func (w *watcher) watch(ctx context.Context) (open bool, err error) {
	w.mu.Lock()
	last := w.spans[len(w.spans)-1].last
	w.mu.Unlock()
	resp, err := w.client.open(ctx, http.MethodGet, fmt.Sprintf("%s?watch=true&allowWatchBookmarks=true&resourceVersion=%d", w.url, last), nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		answer, _ := io.ReadAll(resp.Body)
		err := faultOf(resp.StatusCode, answer, nil)
		if resp.StatusCode == http.StatusGone {
			err = fmt.Errorf("%w: %w", errTooOld, err)
		}
		return false, err
	}
	for decoder := json.NewDecoder(resp.Body); ; {
		var e event
		if err := decoder.Decode(&e); err != nil {
			return true, err
		}
		if e.Type == "ERROR" {
			err := fmt.Errorf("%d %s: %s", e.Object.Code, e.Object.Reason, e.Object.Message)
			if e.Object.Code == http.StatusGone {
				err = fmt.Errorf("%w: %w", errTooOld, err)
			}
			return true, err
		}
		if err := w.see(e); err != nil {
			return true, err
		}
	}
}

func (w *watcher) see(e event) error {
	revision, err := strconv.ParseInt(e.Object.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := &w.spans[len(w.spans)-1]
	if now.last = revision; e.Type != "BOOKMARK" {
		now.seen = append(now.seen, revision)
	}
	return nil
}

// at is how far it is.
func (w *watcher) at() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.spans[len(w.spans)-1].last
}

// faults compares what a watcher saw with what happened: the revisions of its tenant's ConfigMaps, in order. Between
// the end of a span and the list after it nothing is expected.
func faults(spans []span, happened []int64) (out []string) {
	for n, s := range spans {
		expected := happened
		for len(expected) > 0 && expected[0] <= s.from {
			expected = expected[1:]
		}
		if n < len(spans)-1 {
			expected = expected[:min(len(s.seen), len(expected))]
		}
		for i := range max(len(expected), len(s.seen)) {
			switch {
			case i >= len(s.seen):
				out = append(out, fmt.Sprintf("from %d on: the end is missing, from %d on", s.from, expected[i]))
			case i >= len(expected):
				out = append(out, fmt.Sprintf("from %d on: %d was seen, and never was", s.from, s.seen[i]))
			case s.seen[i] != expected[i]:
				out = append(out, fmt.Sprintf("from %d on: %d was seen where %d happened", s.from, s.seen[i], expected[i]))
			default:
				continue
			}
			break
		}
	}
	return out
}

// tell writes into the log why watches ended, and returns how many had to list anew.
func (ws *watchers) tell(t *testing.T) (lists int) {
	t.Helper()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	seen := 0
	for _, w := range ws.all {
		for _, s := range w.spans {
			seen += len(s.seen)
		}
		lists += len(w.spans) - 1
	}
	var ends bytes.Buffer
	for why, n := range ws.ends {
		fmt.Fprintf(&ends, "%6d %s\n", n, why)
	}
	t.Logf("%d watches saw %d events, and listed anew %d times; their ends:\n%s", len(ws.all), seen, lists, strings.TrimSpace(ends.String()))
	return lists
}

func TestTheJudgeOfWatchesFindsWhatIsMissingDoubledOrOutOfOrder(t *testing.T) {
	happened := []int64{2, 5, 6, 9}
	for name, c := range map[string]struct {
		spans []span
		want  int
	}{
		"all":                       {[]span{{from: 1, seen: []int64{2, 5, 6, 9}}}, 0},
		"all since its list":        {[]span{{from: 5, seen: []int64{6, 9}}}, 0},
		"all, and a list":           {[]span{{from: 1, seen: []int64{2}}, {from: 6, seen: []int64{9}}}, 0},
		"one is missing":            {[]span{{from: 1, seen: []int64{2, 6, 9}}}, 1},
		"the end is missing":        {[]span{{from: 1, seen: []int64{2, 5}}}, 1},
		"one came twice":            {[]span{{from: 1, seen: []int64{2, 5, 5, 6, 9}}}, 1},
		"the last came twice":       {[]span{{from: 1, seen: []int64{2, 5, 6, 9, 9}}}, 1},
		"out of order":              {[]span{{from: 1, seen: []int64{5, 2, 6, 9}}}, 1},
		"one is missing, and lists": {[]span{{from: 1, seen: []int64{5}}, {from: 6, seen: []int64{9}}}, 1},
	} {
		if got := faults(c.spans, happened); len(got) != c.want {
			t.Errorf("%s: %q, want %d", name, got, c.want)
		}
	}
}
