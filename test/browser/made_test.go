package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// fiction is a server of the page that makes its answers up: of an installation that is larger, older or worse than one
// that a test can have.
type fiction struct {
	*httptest.Server
	workspaces int         // below root
	shards     []string    // on which they are, in turn; empty: they do not say
	forgets    atomic.Bool // the next page of workspaces is of a snapshot that is forgotten
	down       atomic.Bool // nothing is answered but the page
	noHistory  atomic.Bool
	answers    atomic.Value // what is answered of the installation, if not installation: a string
	asked      atomic.Value // the query of the last term that was asked to end: a string
}

const now = "2026-01-02T12:00:00Z"

func makeUp(t *testing.T, workspaces int) *fiction {
	t.Helper()
	m := &fiction{workspaces: workspaces}
	mux := http.NewServeMux()
	mux.Handle("/ui/", http.StripPrefix("/ui/", http.FileServer(http.Dir(filepath.Join("..", "..", "pkg", "server", "ui", "assets")))))
	answer := func(path string, made func(*http.Request) (int, any)) {
		mux.HandleFunc(path, func(w http.ResponseWriter, req *http.Request) {
			code, body := made(req)
			if m.down.Load() {
				code, body = http.StatusBadGateway, map[string]any{"message": "nobody answers"}
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(body)
		})
	}
	answer("/regent/v1/installation", func(*http.Request) (int, any) {
		if made, ok := m.answers.Load().(string); ok {
			return 200, json.RawMessage(made)
		}
		return 200, json.RawMessage(installation)
	})
	answer("/regent/v1/terms", func(req *http.Request) (int, any) {
		if m.noHistory.Load() || req.FormValue("shard") != "root" {
			return 404, map[string]any{"kind": "Status", "message": "the request names no logical cluster"}
		}
		return 200, map[string]any{"shard": "root", "terms": terms()}
	})
	answer("/regent/v1/workspaces", func(req *http.Request) (int, any) {
		items := []any{}
		for n := 0; n < m.workspaces && len(items) < 50; n++ {
			if path := fmt.Sprintf("root:w%06d", n); strings.Contains(path, req.FormValue("search")) {
				items = append(items, map[string]any{"path": path, "cluster": "c" + strconv.Itoa(n), "phase": "Ready", "shard": "root"})
			}
		}
		return 200, map[string]any{"items": items, "more": len(items) == 50, "faults": map[string]any{"eu1": "it does not answer"}}
	})
	answer("/election/step-down", func(req *http.Request) (int, any) {
		m.asked.Store(req.URL.RawQuery)
		return 200, map[string]any{"replica": "replica-0", "epoch": 3}
	})
	answer("/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces", m.page)
	m.Server = httptest.NewServer(mux)
	t.Cleanup(m.Close)
	return m
}

// page answers with a page of workspaces, as the API does.
func (m *fiction) page(req *http.Request) (int, any) {
	from, _ := strconv.Atoi(strings.TrimPrefix(req.FormValue("continue"), "later-"))
	if from > 0 && m.forgets.CompareAndSwap(true, false) {
		// some come again
		return 410, map[string]any{"kind": "Status", "message": "the snapshot is too old", "metadata": map[string]any{"continue": fmt.Sprintf("later-%d", from-3)}}
	}
	limit, _ := strconv.Atoi(req.FormValue("limit"))
	items, metadata := []any{}, map[string]any{}
	for n := from; n < min(from+limit, m.workspaces); n++ {
		labels := map[string]any{}
		if len(m.shards) > 0 {
			labels["regent.dev/shard"] = m.shards[n%len(m.shards)]
		}
		items = append(items, map[string]any{"metadata": map[string]any{"name": fmt.Sprintf("w%06d", n), "labels": labels}, "spec": map[string]any{"cluster": "c"}, "status": map[string]any{"phase": "Ready"}})
	}
	if left := m.workspaces - from - len(items); left > 0 {
		metadata = map[string]any{"continue": strconv.Itoa(from + limit), "remainingItemCount": left}
	}
	return 200, map[string]any{"items": items, "metadata": metadata}
}

// terms are a thousand, of two replicas in turn: the latest first.
func terms() (all []any) {
	at, _ := time.Parse(time.RFC3339, now)
	for n := range 1000 {
		term := map[string]any{"epoch": 1000 - n, "replica": fmt.Sprintf("host-%d", n%2), "holder": "h", "began": at.Add(-time.Duration(n+1) * time.Hour), "trigger": "dead leader", "gapSeconds": 0.013,
			"phases": map[string]any{"detect": 0.004, "break": 0.001, "acquire": 0.003, "caches": 0.001, "first_reconcile": 0.004, "first_write": 0.005}}
		if n > 0 {
			term["ended"], term["endCause"] = at.Add(-time.Duration(n)*time.Hour-13*time.Millisecond), "lease lost"
		}
		all = append(all, term)
	}
	return all
}

const installation = `{"observed":"` + now + `","by":"host-0","root":"root","fronts":[{"name":"a","heard":"` + now + `"},{"name":"b","heard":"` + now + `"}],
"problems":[{"severity":"critical","shard":"eu1","kind":"shard-silent","what":"Shard eu1 does not answer.","remedy":"See whether it runs.\n$ regent status --shard=eu1\nSee docs/SHARDS.md"}],
"shards":[{"name":"eu1","fault":"it does not answer","clusters":0,"replicas":[]},
{"name":"root","cordoned":true,"clusters":100000,"capacity":100000,"leader":"host-0","replicas":[
 {"shard":"root","name":"host-0","url":"https://a.example:6443","version":"v1","observed":"` + now + `","notReady":[{"name":"etcd","error":"slow"}],
  "fronts":[{"name":"a","heard":"` + now + `"},{"name":"b","heard":"2026-01-02T11:57:00Z"}],
  "election":{"lease":"kube-system/regent-controllers","mode":"lease","state":"leading","epoch":1000,"since":"2026-01-02T11:00:00Z","renewed":"` + now + `"},
  "controllers":[{"name":"workspace","scope":"leader","state":"restarting","since":"` + now + `","restarts":3,"lastError":"it fails","failed":"` + now + `","effect":"started anew","users":{"pending":2,"returned":12345},"sweep":{"running":true,"pending":7,"returned":1}}]},
 {"shard":"root","name":"host-1","url":"https://b.example:6443","observed":"` + now + `","election":{"lease":"kube-system/regent-controllers","state":"standing by","epoch":1000,"leader":"host-0","contact":{"state":"silent"}}},
 {"shard":"root","name":"host-2","url":"https://c.example:6443","observed":"` + now + `","election":{"lease":"kube-system/regent-controllers","state":"standing by","epoch":1000,"leader":"host-0","contact":{"state":"alive","heard":"` + now + `"}}}]},
{"name":"us1","clusters":7,"leader":"us-0","replicas":[
 {"shard":"us1","name":"us-0","url":"https://d.example:6443","observed":"` + now + `","fronts":[{"name":"a"},{"name":"b","heard":"` + now + `"}],
  "election":{"lease":"kube-system/regent-controllers","state":"leading","epoch":3,"since":"2026-01-02T11:00:00Z"}}]}]}`

func TestAHundredThousandWorkspacesCanBeShown(t *testing.T) {
	m := makeUp(t, 100_000)
	p := openAt(t, m.URL+"/ui/")
	shown := `document.querySelectorAll('[role=treeitem][aria-level="2"]').length`
	p.until("the first page is shown", shown+" === 200")
	if more := value[string](p, `document.querySelector('.step').innerText`); !strings.Contains(more, "99,800 left") {
		t.Errorf("more is %q", more)
	}
	p.do("reach more", evaluate(`document.querySelector('.step').focus()`))
	const pages = 10
	for n := range pages {
		m.forgets.Store(n == 3)
		p.press(kb.Enter)
		p.until("the next page is shown", fmt.Sprintf("%s >= %d", shown, 200*(n+2)-3))
	}
	names := value[[]string](p, `[...document.querySelectorAll('[role=treeitem][aria-level="2"]')].map(i => i.getAttribute('aria-label'))`)
	for n, name := range names {
		if want := fmt.Sprintf("root:w%06d", n); name != want {
			t.Fatalf("workspace %d is %s, want %s: one is missing or twice", n, name, want)
		}
	}
	// The page is drawn twice a second. That must not cost more because much is open.
	p.do("look how long the page is busy", evaluate(`{
		let longest = 0, last = performance.now();
		window.changed = 0;
		new MutationObserver(changes => { window.changed += changes.length; })
			.observe(document.querySelector('[role=tree]'), {subtree: true, childList: true, characterData: true, attributes: true});
		const end = last + 1500;
		const tick = () => {
			const now = performance.now();
			longest = Math.max(longest, now - last);
			last = now;
			if (now < end) setTimeout(tick, 0); else window.busy = longest;
		};
		tick();
	}`))
	p.until("a second and a half is over", `window.busy`)
	busy := value[float64](p, `window.busy`)
	t.Logf("MEASURED: with %d workspaces open the page was busy for %.0f ms at a time", len(names), busy)
	if changed := value[int](p, `window.changed`); changed > 0 {
		t.Errorf("the page drew %d things anew among %d workspaces of which none has changed", changed, len(names))
	}
	p.do("search", chromedp.SendKeys(chromedp.CSS(`input[type=search]`), "w09999"))
	p.until("the search finds them, and says what was not searched", `document.querySelectorAll('.found li').length === 10 && document.body.innerText.includes('shard eu1 has not been searched')`)
}

func TestWhoLedWhenIsShown(t *testing.T) {
	m := makeUp(t, 1)
	p := openAt(t, m.URL+"/ui/")
	details := `document.querySelector('.details').innerText`
	options := func(kind string) string { return `document.querySelectorAll('[role=option].` + kind + `').length` }
	p.until("the last day is shown, because something happened in it", options("term")+` === 24 && document.querySelector('.windows [aria-pressed=true]').innerText === '1 d'`)
	p.until("the latest change is told", details+`.includes('Nobody led for 13 ms before epoch 1000 of host-0')`)
	if inSight := value[bool](p, `(o => o.right <= innerWidth && o.left >= 0)([...document.querySelectorAll('[role=option].term')].at(-1).getBoundingClientRect())`); !inSight {
		t.Error("the latest term is not in sight")
	}
	// A gap is as wide as it is long, and never more than a hairline if it is short.
	if wide := value[float64](p, `Math.max(...[...document.querySelectorAll('.gap .line')].map(l => l.width.baseVal.value))`); wide > 2 {
		t.Errorf("a gap of 13 ms is %v pixels wide in a day", wide)
	}
	if label := value[string](p, `[...document.querySelectorAll('.gap.well text')].at(-1).textContent`); label != "13 ms" {
		t.Errorf("the latest gap says %q", label)
	}
	if stops := value[int](p, `document.querySelectorAll('.history [tabindex="0"]').length`); stops != 1 {
		t.Errorf("Tab stops at %d places of the timeline, want 1", stops)
	}
	if ticks := value[int](p, `document.querySelectorAll('.plot .tick').length`); ticks < 4 {
		t.Errorf("the axis has %d ticks", ticks)
	}
	p.do("reach it", evaluate(`document.querySelector('.history [tabindex="0"]').focus()`))
	p.press(kb.ArrowLeft)
	p.until("the term before is told", details+`.includes('host-1 led for 1h, epoch 999') && `+details+`.includes('ceased to lead (lease lost)')`)
	p.press(kb.ArrowLeft)
	p.until("the gap before that is told, with its phases, to scale", details+`.includes('Nobody led for 13 ms before epoch 999') && `+details+`.includes('acquire the lease 3 ms') && document.querySelector('.details .pictured')`)
	p.press(kb.End)
	p.until("the latest is told", details+`.includes('host-0 has led for 1h, epoch 1000')`)
	p.press(kb.Home)
	p.until("the first is told, and in sight, and has the focus", details+`.includes('before epoch 1 of host-1') && document.activeElement.getAttribute('aria-posinset') === '1' && (o => o.right > 0 && o.left < innerWidth)(document.activeElement.getBoundingClientRect())`)
	p.click("all")
	p.until("a thousand terms and the gaps between them are shown", options("term")+` === 1000 && `+options("gap")+` >= 999`)
	p.do("point at the middle", evaluate(`(plot => { const b = plot.getBoundingClientRect(); plot.dispatchEvent(new PointerEvent('pointermove', {clientX: b.left + b.width / 2, bubbles: true})); })(document.querySelector('.plot'))`))
	p.until("the time there is said, to the millisecond, and who led", `/\d\d\.\d{3}.*host-\d led, epoch \d+/.test(document.querySelector('.cursor').innerText)`)
	p.pictures("terms")
}

func TestWhatIsWrongIsShown(t *testing.T) {
	m := makeUp(t, 1)
	m.noHistory.Store(true)
	p := openAt(t, m.URL+"/ui/#controllers/root/host-0")
	for _, want := range []string{
		"Shard eu1 does not answer.", "regent status --shard=eu1", "It has not answered since anybody asked", "it does not answer", "not ready: etcd: slow", "contact: silent", "Uncordon root", "restarting", "it fails", "7 left",
		"its servers keep no history", "front a asks root but does not ask us1", "front b asks us1 but does not ask root", "asked by front b", "front b has not asked it for 3m", "front a has never asked it",
	} {
		p.until("the page says "+want, fmt.Sprintf(`document.body.innerText.includes(%q)`, want))
	}
	if text := value[string](p, `document.body.innerText`); strings.Contains(text, "names no logical cluster") || strings.Contains(text, "undefined") || strings.Contains(text, "NaN") {
		t.Errorf("the page says:\n%s", text)
	}
	if got := value[string](p, `document.querySelector('.problems a[target]').getAttribute('href')`); got != "docs/SHARDS" {
		t.Errorf("the docs are at %q", got)
	}
	p.do("go to what is wrong", evaluate(`document.querySelector('.problems .about a').click()`))
	p.until("the page is there", `document.activeElement.id === 'shard/eu1' && document.querySelector('.arrived').id === 'shard/eu1'`)
	m.down.Store(true)
	p.until("the page says that it is not live", `document.querySelector('.live.stale') && document.querySelector('.live').innerText.includes('nobody answers') && document.querySelector('main.stale')`)
	p.screenshot("stale")
	m.down.Store(false)
	p.until("it is live again", `!document.querySelector('.stale') && document.querySelector('.live').innerText.trim() === 'live'`)
}
