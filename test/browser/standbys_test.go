package browser

import (
	"strings"
	"testing"
)

// drawnLines returns, of each standby, how the line is drawn that leads to it, and what it misses.
const drawnLines = `Object.fromEntries([...document.querySelectorAll('.standbys > li')].map(li => {
	const line = getComputedStyle(li, '::before'), box = li.getBoundingClientRect(), above = (li.previousElementSibling || li.parentElement.previousElementSibling).getBoundingClientRect();
	const leader = li.closest('.shard').querySelector('.leader').getBoundingClientRect(), first = li.querySelector('p').getBoundingClientRect();
	const end = box.top + parseFloat(line.top) + parseFloat(line.height), stem = getComputedStyle(li.parentElement.previousElementSibling, '::before');
	const misses = [];
	if (Math.abs(above.bottom - box.top) > 1) misses.push('what is above it');
	if (end < first.top || end > first.bottom) misses.push('the name of the standby');
	if (li.parentElement.previousElementSibling.getBoundingClientRect().top + parseFloat(stem.top) > leader.bottom + 1) misses.push('the leader');
	if (box.left + parseFloat(line.left) < 0) misses.push('the page');
	return [li.querySelector('strong').innerText, line.borderBottomStyle + (misses.length > 0 ? ', misses ' + misses.join(' and ') : '')];
}))`

func TestWhoFollowsWhomIsDrawn(t *testing.T) {
	m := makeUp(t, 1)
	p := openAt(t, m.URL+"/ui/")
	p.until("the standbys are shown", `document.querySelectorAll('.standbys > li').length === 2`)
	for _, width := range widths {
		for _, scheme := range schemes {
			p.show(width, scheme)
			if got := value[map[string]string](p, drawnLines); len(got) != 2 || got["host-2"] != "solid" || got["host-1"] != "dashed" {
				t.Errorf("at a width of %d the lines are %v: want a solid one to host-2, which follows, and a dashed one to host-1, which does not", width, got)
			}
			p.screenshot(scheme)
		}
	}
	text := value[string](p, `document.querySelector('section[aria-labelledby=shards]').innerText`)
	for _, want := range []string{"host-2 follows host-0", "host-1 hears nothing from host-0 (contact: silent)"} {
		if !strings.Contains(text, want) {
			t.Errorf("the lines are not in words, as %q is:\n%s", want, text)
		}
	}
}
