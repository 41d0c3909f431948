package browser

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"
)

func TestControllersAreShownOfEachReplica(t *testing.T) {
	leader, standby := served.leader(t)
	p := open(t)
	p.until("that they work is said, and no more", `/\d+ controllers work/.test(document.querySelector('[aria-labelledby=controllers]').innerText) && !document.querySelector('.controllers')`)
	p.do("ask for all", evaluate(`document.querySelector('summary').click()`))
	p.until("the leader's controllers are shown", fmt.Sprintf(`document.querySelector('details select').selectedOptions[0].innerText.includes(%q) && document.querySelectorAll('.controllers tbody tr').length > 3`, leader))
	p.until("each says how far its first pass is", `[...document.querySelectorAll('.controllers tbody tr')].every(r => /^(done|\d+ left)$/.test(r.children[4].innerText))`)
	p.until("they run", `[...document.querySelectorAll('.controllers tbody tr')].every(r => r.children[1].innerText.startsWith('running'))`)
	p.do("choose the other", evaluate(fmt.Sprintf(`{
		const s = document.querySelector('details select');
		s.value = [...s.options].find(o => o.innerText.includes(%q)).value;
		s.dispatchEvent(new Event('change', {bubbles: true}));
	}`, standby)))
	p.until("those of the leader do not run there", `[...document.querySelectorAll('.controllers tbody tr')].some(r => !r.children[1].innerText.startsWith('running'))`)
}

func TestWorkspacesAreFoundAPageAtATime(t *testing.T) {
	var names []string
	for n := range 450 {
		names = append(names, fmt.Sprintf("many-%03d", n))
	}
	served.createWorkspaces(t, "root", "many")
	until(t, "the workspace takes others", func() bool {
		resp, err := served.client.Get(served.api + "/clusters/root:many/apis/tenancy.kcp.io/v1alpha1/workspaces")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == 200
	})
	served.createWorkspaces(t, "root:many", names...)
	p := open(t)
	p.until("the tree is open", `document.querySelector('[role=treeitem][aria-label="root:many"]')`)
	p.do("open it", evaluate(`document.querySelector('[role=treeitem][aria-label="root:many"] > .line').click()`))
	shown := `document.querySelectorAll('[role=treeitem][aria-label^="root:many:"]').length`
	p.until("200 are shown", shown+" === 200")
	if more := value[string](p, `document.querySelector('.step').innerText`); !strings.Contains(more, "250 left") {
		t.Errorf("more is %q", more)
	}
	p.click("More")
	p.until("400 are shown", shown+" === 400")
	p.click("More")
	p.until("all are shown, and there is no more", shown+` === 450 && !document.querySelector('.step')`)

	p.do("search", chromedp.SendKeys(chromedp.CSS(`input[type=search]`), "many-44"))
	p.until("the search finds ten", `document.querySelectorAll('.found li').length === 10 && [...document.querySelectorAll('.found li')].every(l => l.innerText.includes('root:many:many-44'))`)
	p.screenshot("found")
	p.do("search on", chromedp.SendKeys(chromedp.CSS(`input[type=search]`), "x"))
	p.until("the search finds none", `document.querySelectorAll('.found li').length === 0 && document.body.innerText.includes('none found')`)
	p.do("clear", evaluate(`{const s = document.querySelector('input[type=search]'); s.value = ''; s.dispatchEvent(new Event('input', {bubbles: true}));}`))
	p.until("the tree is as it was", shown+` === 450 && !document.querySelector('.found') && document.querySelector('[role=tree]').offsetHeight > 0`)
}

func TestThePageFitsAllScreensInLightAndDark(t *testing.T) {
	p := open(t)
	p.do("show all controllers", evaluate(`document.querySelector('summary').click()`))
	p.until("they are shown", `document.querySelector('.controllers')`)
	p.pictures("all")
	ground := map[string]string{}
	for _, scheme := range schemes {
		p.show(390, scheme)
		ground[scheme] = value[string](p, `getComputedStyle(document.body).backgroundColor`)
	}
	if ground["light"] == ground["dark"] {
		t.Errorf("light and dark have the same ground, %s", ground["dark"])
	}
}

// controls are the roles that somebody acts on. Each must say what it is.
var controls = map[string]bool{
	"button": true, "link": true, "textbox": true, "searchbox": true, "combobox": true, "listbox": true, "option": true, "treeitem": true, "tree": true,
	"dialog": true, "checkbox": true, "region": true,
}

func TestEveryControlHasAName(t *testing.T) {
	_, standby := served.leader(t)
	p := open(t)
	check := func(when string, want ...string) {
		t.Helper()
		tree := get(p, "read the accessibility tree", func(ctx context.Context, t *chromedp.Target) (accessibility.GetFullAXTreeResult, error) {
			return cdp.Call(ctx, t, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		})
		found := map[string]int{}
		for _, n := range tree.Nodes {
			if n.Ignored || n.Role == nil {
				continue
			}
			role := strings.Trim(string(n.Role.Value), `"`)
			name := ""
			if n.Name != nil {
				name = strings.Trim(string(n.Name.Value), `" `)
			}
			found[role]++
			if controls[role] && name == "" {
				t.Errorf("%s: a %s has no name (node %d)", when, role, n.BackendDOMNodeID)
			}
		}
		for _, role := range want {
			if found[role] == 0 {
				t.Errorf("%s: there is no %s: %v", when, role, found)
			}
		}
	}
	p.do("show all controllers", evaluate(`document.querySelector('summary').click()`))
	p.until("they are shown", `document.querySelector('.controllers')`)
	check("at first", "link", "button", "searchbox", "combobox", "tree", "treeitem", "region", "main")
	p.click("Hand over to " + standby)
	p.until("it asks", `document.querySelector('dialog[open]')`)
	check("in the dialog", "dialog", "button")
	p.click("No")
}

// The policy must be in force, or the tests that see no violation prove nothing.
func TestNothingElseRunsInThePage(t *testing.T) {
	p := open(t)
	p.do("add an inline script", evaluate(`{
		const s = document.createElement('script'); s.textContent = 'window.ran = true'; document.head.append(s);
		const d = document.createElement('div'); d.setAttribute('style', 'color: red'); document.body.append(d);
	}`))
	if value[bool](p, `!!window.ran`) {
		t.Error("an inline script has run")
	}
	until(t, "the browser complains of it", func() bool { return len(p.complaints()) > 0 })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = nil
}
