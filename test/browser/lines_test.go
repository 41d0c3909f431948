package browser

import (
	"fmt"
	"strings"
	"testing"
)

// line is one of the map: what kind it is, how it is drawn, and at which elements it begins and ends.
type line struct{ Kind, From, To string }

// drawnLines returns what the lines of the map join, by where they are drawn.
const drawnLines = `(() => {
	const svg = document.querySelector('svg.lines'), whole = svg.getBoundingClientRect();
	const places = [...document.querySelectorAll('.fronts > li, .shards > li, .leader, .standbys > li')].map(e => ({
		name: e.querySelector('strong, h3').innerText.split(/\s/)[0], box: e.getBoundingClientRect(), leader: e.classList.contains('leader'), shard: e.classList.contains('shard'),
	}));
	const at = (path, length) => {
		const p = path.getPointAtLength(length), x = p.x + whole.left, y = p.y + whole.top;
		const edge = (b) => x >= b.left - 1 && x <= b.right + 1 && (Math.abs(y - b.top) <= 1 || Math.abs(y - b.bottom) <= 1) || y >= b.top && y <= b.bottom && Math.abs(x - b.left) <= 1;
		return places.filter(p => edge(p.box)).map(p => p.name)[0] || '';
	};
	return [...svg.querySelectorAll('g')].map(g => {
		const path = g.querySelector('path');
		return {kind: g.getAttribute('class').trim(), from: at(path, 0), to: at(path, path.getTotalLength())};
	});
})()`

func TestWhoFollowsWhomIsDrawn(t *testing.T) {
	m := makeUp(t, 1)
	p := openAt(t, m.URL+"/ui/")
	p.until("the map is drawn", `document.querySelectorAll('svg.lines g').length > 0`)
	for _, width := range []int64{1200, 760, 390} {
		for _, scheme := range []string{"light", "dark"} {
			p.show(width, scheme)
			var missing []line
			want := []line{
				{"asks partly", "a", ""}, {"asks partly", "b", ""}, {"asks broken", "", "eu1"}, {"asks partly", "", "root"}, {"asks partly", "", "us1"},
				{"follows", "host-2", "host-0"}, {"follows broken", "host-1", "host-0"},
			}
			until(t, fmt.Sprintf("all lines are drawn at a width of %d", width), func() bool {
				got := value[[]line](p, drawnLines)
				missing = nil
				for _, w := range want {
					found := false
					for _, g := range got {
						found = found || g == w
					}
					if !found {
						missing = append(missing, w)
					}
				}
				return len(missing) == 0
			})
			if wide := value[bool](p, `[...document.querySelectorAll('svg.lines path')].some(l => l.getBoundingClientRect().right > innerWidth || l.getBoundingClientRect().left < 0)`); wide {
				t.Errorf("at a width of %d a line leaves the page", width)
			}
			p.screenshot(fmt.Sprintf("%s-%d", scheme, width))
		}
	}
	if hidden := value[string](p, `document.querySelector('svg.lines').getAttribute('aria-hidden')`); hidden != "true" {
		t.Error("lines are read out")
	}
	if text := value[string](p, `document.querySelector('section[aria-labelledby=map]').innerText`); !strings.Contains(text, "follows host-0") || !strings.Contains(text, "contact: silent") {
		t.Errorf("the lines are not in words:\n%s", text)
	}
}
