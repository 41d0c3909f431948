package browser

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// seen is how soon a change of the leader must be seen. On an idle machine it takes a second at the most; here others
// may run tests.
const seen = 5 * time.Second

// outcome is what the last action did.
const outcome = `(document.querySelector('.told span') || {innerText: ''}).innerText`

// leads is the name of the leader, as the page says it.
const leads = `(document.querySelector('.leader.replica strong') || {}).innerText`

func TestTheDeathOfALeaderIsSeen(t *testing.T) {
	leader, standby := served.leader(t)
	p := open(t)
	p.until("the page says who leads and who follows", fmt.Sprintf(`%s === %q && document.querySelector('.standbys .follows strong').innerText === %q`, leads, leader, standby))
	p.pictures("quiet")
	p.show(1280, "light")
	// The page itself notes when it shows the next leader: by the clock of this machine, as the test does.
	p.do("observe", evaluate(fmt.Sprintf(`new MutationObserver((_, o) => {
		const now = %s;
		if (now && now !== %q) { window.shown = {who: now, at: performance.timeOrigin + performance.now()}; o.disconnect(); }
	}).observe(document.getElementById('page'), {subtree: true, childList: true, characterData: true})`, leads, leader)))
	killed := time.Now()
	if err := syscall.Kill(served.pid(t), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.until("the page shows the next leader", `window.shown`)
	took := time.Duration((value[float64](p, `window.shown.at`) - float64(killed.UnixMicro())/1000) * float64(time.Millisecond))
	t.Logf("MEASURED: the page showed the next leader %v after kill -9", took.Round(time.Millisecond))
	if who := value[string](p, `window.shown.who`); who != standby || took > seen || took < 0 {
		t.Errorf("the page shows that %s leads, %v after the kill; want %s within %v", who, took, standby, seen)
	}
	p.until("it says at once why the new one leads", fmt.Sprintf(`['.details', '.change'].every(part => document.querySelector(part).innerText.includes('%s died'))`, leader))
	t.Logf("MEASURED: and why it leads %v after the kill", time.Since(killed).Round(time.Millisecond))
	if took := time.Since(killed); took > 2*seen {
		t.Errorf("why it leads was shown %v after the kill, want %v at most", took, 2*seen)
	}
	p.until("the timeline has both terms, and the gap", fmt.Sprintf(`((all) => all.some(l => l.startsWith('%s has led for ')) && all.some(l => l.startsWith('%s led for ') && l.endsWith('and died')) &&
		all.some(l => /^Nobody led for [1-9]\d* ms before epoch/.test(l) && l.includes(%q)))([...document.querySelectorAll('[role=option]')].map(o => o.getAttribute('aria-label')))`, standby, leader, standby))
	p.until("for how long nobody led is what one sees first", `/^[1-9]\d* ms$/.test(document.querySelector('.change .big').innerText)`)
	p.until("the dead one is not shown as one that follows, and says what it was", fmt.Sprintf(`document.querySelectorAll('.standbys .follows').length === 0 && /%s does not answer since[^]*It led in epoch/.test(document.querySelector('.standbys').innerText)`, leader))
	t.Logf("MEASURED: and for how long nobody led %v after the kill", time.Since(killed).Round(time.Millisecond))
	p.pictures("failover")
	if err := served.dev.cmd.Process.Signal(syscall.SIGUSR1); err != nil { // restarts it
		t.Fatal(err)
	}
	p.until("it follows again", `document.querySelectorAll('.standbys .follows').length === 1`)
	if now, _ := served.leader(t); now != standby {
		t.Errorf("%s leads, want %s", now, standby)
	}
}

func TestLeadershipIsHandedOverOnlyByAYes(t *testing.T) {
	leader, standby := served.leader(t)
	p := open(t)
	p.until("the page says who leads", fmt.Sprintf(`%s === %q`, leads, leader))
	epoch := `document.querySelector('.leader.replica .epoch').innerText`
	before := value[string](p, epoch)
	p.click("Hand over to " + standby)
	p.until("it asks first", `document.querySelector('dialog[open]') && document.activeElement.innerText === 'No'`)
	p.screenshot("asks")
	p.click("No")
	p.until("the dialog is gone", `!document.querySelector('dialog')`)
	if says := value[string](p, outcome); says != "" || value[string](p, epoch) != before {
		t.Errorf("after No the page says %q, epoch %s", says, value[string](p, epoch))
	}
	if now, _ := served.leader(t); now != leader {
		t.Errorf("after No %s leads, want %s", now, leader)
	}
	p.click("Hand over to " + standby)
	const reason = "upgrade of the machine"
	p.do("say why", chromedp.SendKeys(chromedp.CSS(".reason"), reason))
	p.click("Yes")
	p.until("the page shows the one that was handed to", fmt.Sprintf(`%s === %q && !document.querySelector('dialog')`, leads, standby))
	p.until("it tells what was done", fmt.Sprintf(`/^%s leads, [\d.]+ m?s later\. %s handed over, as you asked\.$/.test(%s)`, standby, leader, outcome))
	p.until("the history says why", fmt.Sprintf(`document.querySelector('.change').innerText.includes(%q)`, reason))
	if now := value[string](p, epoch); now == before {
		t.Errorf("the epoch is %s still", now)
	}
	p.screenshot("after")
	if now, _ := served.leader(t); now != standby {
		t.Errorf("%s leads, want %s", now, standby)
	}
}

// A page that a server serves acts on the whole shard, also if that server does not lead.
func TestAPageOfAStandbyHandsOver(t *testing.T) {
	leader, standby := served.leader(t)
	p := openAt(t, served.pageOf(t, standby))
	for _, c := range []struct{ button, from, to string }{{"Hand over to " + standby, leader, standby}, {"Have " + standby + " step down", standby, leader}} {
		p.until("the page says who leads and who follows", fmt.Sprintf(`%s === %q && document.querySelector('.standbys .follows strong')?.innerText === %q`, leads, c.from, c.to))
		p.click(c.button)
		p.click("Yes")
		p.until("the other one leads", fmt.Sprintf(`%s === %q`, leads, c.to))
		p.until("it tells what was done", fmt.Sprintf(`%s.startsWith('%s leads, ') && %[1]s.includes('%[3]s handed over')`, outcome, c.to, c.from))
	}
	served.leader(t)
}

func TestAShardIsCordonedOnlyByAYes(t *testing.T) {
	served.leader(t)
	p := open(t)
	for n, width := range []int64{1200, 390} {
		p.show(width, []string{"dark", "light"}[n])
		p.until("the shard takes clusters", `!document.querySelector('.shard .head').innerText.includes('cordoned')`)
		before := value[string](p, outcome)
		p.click("Cordon root")
		p.until("it asks first", `document.querySelector('dialog[open]')?.innerText.includes('It takes no new logical clusters')`)
		if out := value[bool](p, `(b => b.left < 0 || b.right > innerWidth || b.top < 0 || b.bottom > innerHeight)(document.querySelector('dialog').getBoundingClientRect())`); out {
			t.Errorf("at a width of %d the question does not fit", width)
		}
		p.screenshot(fmt.Sprintf("asks-%d", width))
		p.press(kb.Escape)
		p.until("the question is gone", `!document.querySelector('dialog')`)
		if now := value[string](p, outcome); now != before || value[bool](p, `document.querySelector('.shard .head').innerText.includes('cordoned')`) {
			t.Errorf("it acts without a yes: %s", now)
		}
		p.click("Cordon root")
		p.click("Yes, cordon")
		p.until("the page says that it is cordoned", `document.querySelector('.shard .head').innerText.includes('cordoned') && `+outcome+` === 'Shard root takes no new logical clusters.'`)
		p.screenshot(fmt.Sprintf("cordoned-%d", width))
		p.click("Uncordon root")
		p.until("it asks first", `document.querySelector('dialog[open]')`)
		p.click("Yes, uncordon")
		p.until("it takes clusters again", `!document.querySelector('.shard .head').innerText.includes('cordoned') && `+outcome+` === 'Shard root takes new logical clusters.'`)
	}
}

func TestTheKeyboardIsEnough(t *testing.T) {
	leader, standby := served.leader(t)
	served.createWorkspaces(t, "root", "keys-a", "keys-b")
	p := open(t)
	p.until("the page says who leads", fmt.Sprintf(`%s === %q`, leads, leader))
	button := "Hand over to " + standby
	p.tabTo(button, "")
	p.press(kb.Enter)
	p.until("it asks, and No has the focus", `document.querySelector('dialog[open]') && document.activeElement.innerText === 'No'`)
	p.press(kb.Escape)
	p.until("Escape closes the dialog", `!document.querySelector('dialog')`)
	if got := p.focused(); got != button {
		t.Errorf("after the dialog %q has the focus, want %q", got, button)
	}
	p.tabTo("root", "treeitem")
	p.until("the tree is open", `document.querySelector('[role=tree] [role=group] [role=treeitem]')`)
	first := value[string](p, `document.querySelector('[role=tree] [role=group] [role=treeitem]').getAttribute('aria-label')`)
	for _, step := range []struct{ key, focused, expanded string }{
		{kb.ArrowRight, first, "false"}, {kb.ArrowLeft, "root", "true"}, {kb.ArrowDown, first, "false"}, {kb.Enter, first, "true"}, {kb.ArrowLeft, first, "false"},
		{kb.ArrowUp, "root", "true"}, {kb.ArrowLeft, "root", "false"}, {kb.ArrowLeft, "root", "false"}, {kb.ArrowRight, "root", "true"},
	} {
		p.press(step.key)
		if got, expanded := p.focused(), value[string](p, `document.activeElement.getAttribute('aria-expanded')`); got != step.focused || expanded != step.expanded {
			t.Fatalf("after %q: %q has the focus, expanded %s; want %q, %s", step.key, got, expanded, step.focused, step.expanded)
		}
		p.until("it has loaded", `!document.querySelector('[aria-busy=true]')`)
	}
}

// tabTo presses Tab until what says so, and has that role, has the focus.
func (p *tab) tabTo(says, role string) {
	p.Helper()
	for range 100 {
		if p.focused() == says && value[string](p, `document.activeElement.getAttribute('role') || ''`) == role {
			return
		}
		p.press(kb.Tab)
	}
	p.Fatalf("Tab does not reach %q", says)
}
