package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// widths and schemes are those in which the page is looked at: a phone, a tablet, and two screens.
var (
	widths  = []int64{390, 768, 1280, 1920}
	schemes = []string{"light", "dark"}
)

// pictures takes a screenshot in each width and scheme, and holds the page to what must be so in all of them: nothing
// is wider than the screen, and all texts can be read.
func (p *tab) pictures(name string) {
	p.Helper()
	for _, width := range widths {
		for _, scheme := range schemes {
			p.show(width, scheme)
			p.until("it is that wide, and drawn", fmt.Sprintf(`innerWidth === %d && [...document.querySelectorAll('.plot')].every(plot => Math.abs(plot.clientWidth - plot.firstElementChild.width.baseVal.value) < 1)`, width))
			if faults := value[[]string](p, overflowing); len(faults) > 0 {
				p.Errorf("%s, at a width of %d, leaves the page: %q", name, width, faults)
			}
			if faults := value[[]string](p, unreadable); len(faults) > 0 {
				p.Errorf("%s, at a width of %d, %s: contrast is less than WCAG 2.2 asks for (AA): %q", name, width, scheme, faults)
			}
			p.screenshot(fmt.Sprintf("%s-%s-%d", name, scheme, width))
		}
	}
}

// overflowing are the elements that are wider than the page, and names that are cut off. What scrolls by itself may be.
const overflowing = `[...document.querySelectorAll('body *')]
	.filter(e => !e.closest('.scroller, svg, .unseen') && e.getBoundingClientRect().right > innerWidth + 0.5 || e === document.body.firstElementChild && document.documentElement.scrollWidth > innerWidth)
	.map(e => e.tagName + '.' + e.className + ' ' + e.getBoundingClientRect().right)
	.concat([...document.querySelectorAll('.names span')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.innerText + ' is cut off'))`

// unreadable are the texts whose colour is too near to that of what is behind them, as the browser has computed both.
const unreadable = `(() => {
	const parse = colour => (colour.match(/[\d.]+/g) || []).map(Number);
	const isSeen = c => c.length >= 3 && (c[3] === undefined || c[3] > 0);
	const luminance = c => c.slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const ground = e => {
		for (; e; e = e.parentElement) {
			const c = parse(getComputedStyle(e).backgroundColor);
			if (isSeen(c)) return c;
		}
		return [255, 255, 255];
	};
	const inSVG = (text, box) => {
		let svg = text.ownerSVGElement;
		while (svg.ownerSVGElement) svg = svg.ownerSVGElement;
		const x = (box.left + box.right) / 2, y = (box.top + box.bottom) / 2;
		const under = [...svg.querySelectorAll('rect')].filter(r => r.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING).filter(r => {
			const b = r.getBoundingClientRect();
			return b.left <= x && x <= b.right && b.top <= y && y <= b.bottom && isSeen(parse(getComputedStyle(r).fill));
		}).at(-1);
		return under ? parse(getComputedStyle(under).fill) : ground(svg.parentElement);
	};
	const out = new Set(), walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const node = walk.currentNode, e = node.parentElement, range = document.createRange();
		range.selectNodeContents(node);
		const box = range.getBoundingClientRect();
		if (!node.data.trim() || box.width === 0 || e.closest('.unseen, title, noscript, option')) continue;
		const style = getComputedStyle(e), isDrawn = e instanceof SVGElement;
		const a = luminance(parse(isDrawn ? style.fill : style.color)), b = luminance(!isDrawn ? ground(e) : style.paintOrder.startsWith('stroke') ? parse(style.stroke) : inSVG(e, box)); // a text may bring its ground
		const size = parseFloat(style.fontSize), isLarge = size >= 24 || size >= 18.66 && style.fontWeight >= 700;
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < (isLarge ? 3 : 4.5)) out.add(e.tagName + '.' + (e.className.baseVal ?? e.className) + ' ' + node.data.trim().slice(0, 40) + ' ' + ratio.toFixed(2));
	}
	return [...out];
})()`

// The made-up installations are of this moment.
var moment = time.Date(2026, 1, 2, 22, 48, 56, 0, time.UTC)

type fields map[string]any

// madeReplica is a replica of a shard, whose leader's term has lasted so long. It leads if it has that leader's name.
func madeReplica(shard, name, leader string, epoch int, lasted time.Duration, port int, more fields) fields {
	election := fields{"lease": "kube-system/regent-controllers", "mode": "lease", "state": "standing by", "epoch": epoch, "holder": leader + "_1", "leader": leader, "leaseDurationSeconds": 15,
		"contact": fields{"state": "alive", "heard": moment.Add(-125 * time.Millisecond), "allowedSilenceSeconds": 1.6}}
	if name == leader {
		election["state"], election["since"], election["renewed"], election["trigger"] = "leading", moment.Add(-lasted), moment.Add(-800*time.Millisecond), "death"
		delete(election, "contact")
	}
	var controllers []fields
	for _, c := range []string{"apibinding", "apiexport", "clusterrole", "crd", "garbagecollector", "logicalcluster", "namespace", "quota", "serviceaccount", "token", "workspace"} {
		state := "stopped"
		if name == leader {
			state = "running"
		}
		controllers = append(controllers, fields{"name": c, "scope": "leader", "state": state, "since": moment.Add(-lasted), "users": fields{"running": name == leader, "pending": 0, "returned": 1234}, "sweep": fields{"pending": 0, "returned": 87}})
	}
	out := fields{"shard": shard, "name": name, "url": fmt.Sprintf("https://10.0.%d.7:6443", port), "version": "v1.37.2+regent.4", "observed": moment, "election": election, "controllers": controllers}
	for k, v := range more {
		out[k] = v
	}
	return out
}

// madeTerm is a term that began so long ago, and went on until the next one began, after a gap.
func madeTerm(epoch int, replica string, ago, lasted time.Duration, gap float64, trigger, cause, reason string) fields {
	out := fields{"epoch": epoch, "replica": replica, "holder": fmt.Sprintf("%s_%d", replica, epoch), "began": moment.Add(-ago), "trigger": trigger}
	if gap > 0 {
		out["gapSeconds"] = gap
		out["phases"] = fields{"detect": 0.35 * gap, "break": 0.1 * gap, "acquire": 0.55 * gap, "caches": 0.0008, "first_reconcile": 0.004, "first_write": 0.0062}
	}
	if lasted > 0 {
		out["ended"], out["endCause"], out["endReason"] = moment.Add(lasted-ago), cause, reason
	}
	return out
}

// answerOf is what a server answers of an installation.
func answerOf(of fields) string {
	whole := fields{"observed": moment, "by": "replica-1", "root": "root", "triggers": fields{"death": "the previous leader had died", "release": "the previous leader gave the lease up", "suspicion": "the previous leader was silent"}}
	for k, v := range of {
		whole[k] = v
	}
	text, err := json.Marshal(whole)
	if err != nil {
		panic(err) // they are plain values
	}
	return string(text)
}

// threeShards are an installation of which shard-2 has just died.
func threeShards() string {
	shard := func(name string, clusters int, leader, standby string, epoch int, lasted time.Duration, net int, terms ...fields) fields {
		fronts := fields{"fronts": []fields{{"name": "front-a", "heard": moment}, {"name": "front-b", "heard": moment}}}
		return fields{"name": name, "clusters": clusters, "capacity": 20000, "leader": leader, "terms": terms,
			"replicas": []fields{madeReplica(name, leader, leader, epoch, lasted, net, fronts), madeReplica(name, standby, leader, epoch, lasted, net+1, fronts)}}
	}
	return answerOf(fields{
		"fronts": []fields{{"name": "front-a", "heard": moment}, {"name": "front-b", "heard": moment}},
		"problems": []fields{{"severity": "critical", "shard": "shard-2", "kind": "shard-silent", "what": "Shard shard-2 does not answer: dial tcp 10.0.5.7:6443: connect: connection refused. Its users are refused.",
			"remedy": "See whether its replicas are running, and start them. Then ask one of them directly:\n$ regent status --server=https://<replica>:<port>\nIf it answers, the other shards cannot reach it: `regent shard list` has its URLs, and `regent shard set` changes them.\n$ regent shard list\nSee docs/SHARDS.md#what-is-down-and-what-goes-on"}},
		"shards": []fields{
			shard("root", 1204, "root-replica-0", "root-replica-1", 7, 26*time.Hour, 1,
				madeTerm(7, "root-replica-0", 26*time.Hour, 0, 0.011, "death", "", ""), madeTerm(6, "root-replica-1", 51*time.Hour, 25*time.Hour, 0.013, "death", "death", "")),
			shard("shard-1", 4820, "shard-1-replica-1", "shard-1-replica-0", 4, 41*time.Minute, 3,
				madeTerm(4, "shard-1-replica-1", 41*time.Minute, 0, 0.046, "release", "", ""), madeTerm(3, "shard-1-replica-0", 9*time.Hour, 9*time.Hour-41*time.Minute, 0.009, "death", "step down", "step down: on request: asked by admin: upgrade of the machine")),
			{"name": "shard-2", "fault": "dial tcp 10.0.5.7:6443: connect: connection refused", "clusters": 0, "replicas": []fields{}, "heard": moment.Add(-38 * time.Second), "terms": []fields{
				madeTerm(2, "shard-2-replica-0", 5*time.Hour, 0, 0.012, "death", "", ""), madeTerm(1, "shard-2-replica-1", 30*time.Hour, 25*time.Hour, 0, "none", "death", "")}},
		},
	})
}

// loneShard is a shard with three replicas: before its leader dies, and a second after it.
func loneShard(isAfter bool, clusters int) string {
	before := madeTerm(12, "replica-0", 3*time.Hour, 0, 0.009, "death", "", "")
	older := []fields{madeTerm(11, "replica-1", 20*time.Hour, 17*time.Hour, 0.058, "release", "death", ""), madeTerm(10, "replica-2", 23*time.Hour, 3*time.Hour, 0.013, "death", "step down", "step down: on request: asked by admin: upgrade of the machine")}
	leader, epoch, lasted := "replica-0", 12, 3*time.Hour
	terms := append([]fields{before}, older...)
	replicas := func() []fields {
		var all []fields
		for n, name := range []string{"replica-0", "replica-1", "replica-2"} {
			all = append(all, madeReplica("root", name, leader, epoch, lasted, n+1, nil))
		}
		return all
	}
	whole := fields{}
	all := replicas()
	if isAfter {
		leader, epoch, lasted = "replica-1", 13, 1013*time.Millisecond
		ended := madeTerm(12, "replica-0", 3*time.Hour, 3*time.Hour-1020*time.Millisecond, 0.009, "death", "death", "")
		terms = append([]fields{madeTerm(13, "replica-1", lasted, 0, 0.007, "death", "", ""), ended}, older...)
		all = replicas()
		all[0] = fields{"shard": "root", "name": "replica-0", "url": "https://10.0.1.7:6443", "fault": "dial tcp 10.0.1.7:6443: connect: connection refused", "seen": moment.Add(-1020 * time.Millisecond)}
		whole["problems"] = []fields{{"severity": "warning", "shard": "root", "replica": "replica-0", "kind": "replica-silent", "what": "Replica replica-0 does not answer: dial tcp 10.0.1.7:6443: connect: connection refused.",
			"remedy": "See whether its process is running, and read its log. Start it if it has ended, or restart it if it hangs: another replica leads meanwhile.\nIf it is running: can the others reach https://10.0.1.7:6443? Check --advertise-address and network policies.\nSee docs/OPERATIONS.md#how-long-nobody-leads"}}
	}
	whole["shards"] = []fields{{"name": "root", "clusters": clusters, "capacity": max(20000, clusters), "leader": leader, "terms": terms, "replicas": all}}
	return answerOf(whole)
}

// openMade opens the page of a made-up installation, without the history that others have.
func openMade(t *testing.T, of string, workspaces int, shards ...string) (*tab, *fiction) {
	t.Helper()
	m := makeUp(t, workspaces)
	m.noHistory.Store(true)
	m.answers.Store(of)
	m.shards = shards
	p := openAt(t, m.URL+"/ui/")
	p.until("the page shows it", `document.querySelectorAll('.shard').length > 0`)
	return p, m
}

func TestThreeShardsWithOneDead(t *testing.T) {
	p, _ := openMade(t, threeShards(), 40, "root", "shard-1", "shard-2")
	for _, want := range []string{"Last heard", "38 s ago", "shard-2-replica-0 led, in epoch 2", "asked by admin: upgrade of the machine"} {
		p.until("the page says "+want, fmt.Sprintf(`document.querySelector('main').innerText.includes(%q)`, want))
	}
	if shown := value[int](p, `document.querySelectorAll('.history').length`); shown != 3 {
		t.Errorf("the histories of %d shards are shown: that of the dead one is remembered", shown)
	}
	p.until("workspaces of the dead shard say so", `document.querySelector('.tree .fault')?.innerText === 'shard shard-2 does not answer'`)
	p.pictures("one-dead")
	p.docsPicture("page-shards", 1280, "dark")
}

func TestAFailoverThatOneSeesIsMarked(t *testing.T) {
	p, m := openMade(t, loneShard(false, 431), 40)
	p.until("all is well", `document.querySelector('.health').innerText.includes('All is well') && !document.querySelector('.fresh')`)
	p.pictures("quiet")
	p.show(1280, "light")
	m.answers.Store(loneShard(true, 431))
	p.until("the change is marked", `document.querySelector('.fresh .change')?.innerText.toLowerCase().includes('just now')`)
	p.until("and read out", `[...document.querySelectorAll('[role=status]')].some(s => s.textContent === 'replica-1 leads shard root now.')`)
	if got := value[string](p, `document.querySelector('.change').innerText`); !containsAll(got, "7 ms", "nobody led", "replica-0 died at", "replica-1 took over") {
		t.Errorf("the change is told so:\n%s", got)
	}
	p.docsPicture("page", 1280, "light")
	p.pictures("failover")
	p.until("the mark goes, and the change stays", `!document.querySelector('.fresh') && document.querySelector('.change').innerText.includes('7 ms')`)
}

func TestManyWorkspacesAreOneScreen(t *testing.T) {
	p, _ := openMade(t, loneShard(false, 100_000), 100_000)
	p.until("the first page is shown", `document.querySelectorAll('[role=treeitem][aria-level="2"]').length === 200`)
	p.do("choose one", evaluate(`document.querySelector('[role=treeitem][aria-level="2"]').focus()`))
	p.until("how to use it is told", `document.querySelector('.chosen').innerText.includes('kubectl --server=https://10.0.1.7:6443/clusters/root:w000000')`)
	p.do("stand in for the clipboard", evaluate(`Object.defineProperty(navigator, 'clipboard', {value: {writeText: async text => { window.copied = text; }}})`))
	p.do("copy", evaluate(`document.querySelector('.chosen [aria-label="Copy the URL"]').click()`))
	p.until("it is copied", `window.copied === 'https://10.0.1.7:6443/clusters/root:w000000' && document.querySelector('.chosen').innerText.includes('Copied')`)
	p.pictures("many-workspaces")
}

// The server whose controller misbehaves is a real one.
func TestAFailingControllerIsFound(t *testing.T) {
	faulty := filepath.Join("..", "..", "bin", "faulty")
	if _, err := os.Stat(faulty); err != nil {
		t.Fatalf("make bin/faulty builds a server with controllers that misbehave: %v", err)
	}
	s, err := startShard(t.TempDir(), "--program="+faulty, "--", "--faults=panics")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	p := openAt(t, s.url)
	p.until("the page says which one fails", `document.querySelector('.failing strong')`)
	p.until("a problem links to it", `document.querySelector('.problems a[href^="#controllers/"]')`)
	p.do("follow the link", evaluate(`document.querySelector('.problems a[href^="#controllers/"]').click()`))
	p.until("all controllers of that replica are shown", `document.querySelectorAll('.controllers tbody tr').length > 3 && '#' + document.querySelector('details.arrived').id === decodeURIComponent(location.hash)`)
	p.pictures("failing-controller")
}

func containsAll(text string, parts ...string) bool {
	for _, part := range parts {
		if !bytes.Contains([]byte(text), []byte(part)) {
			return false
		}
	}
	return true
}

// docsPicture takes a picture for docs/UI.md, and looks that the page has one of that size. It need not be the same to
// the pixel: fonts differ.
func (p *tab) docsPicture(name string, width int64, scheme string) {
	p.Helper()
	p.show(width, scheme)
	quality := int64(85)
	shot := get(p, "take a picture for the docs", func(ctx context.Context, t *chromedp.Target) (page.CaptureScreenshotResult, error) {
		return cdp.Call(ctx, t, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatWebp, Quality: &quality})
	})
	file := filepath.Join(*screenshots, name+".webp")
	if err := os.WriteFile(file, shot.Data, 0o644); err != nil {
		p.Error(err)
	}
	if _, err := os.Stat(filepath.Join("..", "..", "docs", "pictures", name+".webp")); err != nil {
		p.Errorf("docs/UI.md has no picture of this: cp %s docs/pictures/: %v", file, err)
	}
	const most = 120 << 10
	if len(shot.Data) > most {
		p.Errorf("the picture %s has %d bytes, more than %d", name, len(shot.Data), most)
	}
}
