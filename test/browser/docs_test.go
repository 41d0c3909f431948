package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// What the policy refuses would be among the browser's complaints.
func TestTheDocsFitNarrowAndWideLightAndDark(t *testing.T) {
	p := open(t)
	docs, _, _ := strings.Cut(value[string](p, "location.href"), "?")
	for _, page := range []string{"docs/", "docs/OPERATIONS", "docs/FAILOVER", "docs/reference/alerts", "docs/reference/api"} {
		p.do("open "+page, chromedp.Navigate(docs+page))
		p.until("its pictures are there", `[...document.images].every(i => i.complete && i.naturalWidth > 0)`)
		for _, width := range []int64{390, 1280} {
			for _, scheme := range []string{"light", "dark"} {
				p.show(width, scheme)
				at := fmt.Sprintf("%s, %d, %s", page, width, scheme)
				if over := value[int64](p, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
					t.Errorf("%s: the page is %d pixels too wide", at, over)
				}
				if size := value[float64](p, "parseFloat(getComputedStyle(document.querySelector('main p')).fontSize)"); size < 14 {
					t.Errorf("%s: letters are of %.0f pixels", at, size)
				}
				ground := value[string](p, "getComputedStyle(document.body).backgroundColor")
				if isDark := ground == "rgb(14, 16, 22)"; isDark != (scheme == "dark") {
					t.Errorf("%s: its ground is %s", at, ground)
				}
				// the whole of a long page takes seconds
				if page == "docs/FAILOVER" || page == "docs/reference/api" {
					p.screenshot(fmt.Sprintf("%s-%d-%s", strings.ReplaceAll(page, "/", "-"), width, scheme))
				}
			}
		}
	}
	p.do("open a problem's section", chromedp.Navigate(docs+"docs/OPERATIONS.md#problems"))
	p.until("it is shown", `location.pathname.endsWith('/docs/OPERATIONS') && document.querySelector(':target')?.innerText === 'Problems' && Math.abs(document.querySelector(':target').getBoundingClientRect().top) < 100`)
	p.do("follow a link to another page", evaluate(`document.querySelector('main a[href^="FAILOVER"]').click()`))
	p.until("it is there", `location.pathname.endsWith('/docs/FAILOVER') && document.querySelector('h1')?.innerText === 'Failover'`)
}
