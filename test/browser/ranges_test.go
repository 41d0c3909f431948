package browser

import (
	"strings"
	"testing"
	"time"
)

// dividedShard is one of three replicas that share 64 ranges. leader is who leads range 7, in that epoch; empty:
// nobody does.
func dividedShard(leader string, epoch int) string {
	names := []string{"replica-0", "replica-1", "replica-2"}
	var ranges, present, replicas []fields
	count := map[string]int{}
	for k := range 64 {
		of := fields{"range": k, "state": "standing by", "epoch": 3, "leader": names[k%3], "assigned": names[k%3]}
		if k == 7 {
			of["leader"], of["epoch"] = leader, epoch
			if leader == "" {
				of["leaderlessSeconds"] = 8
			}
		}
		count[of["leader"].(string)]++
		ranges = append(ranges, of)
	}
	for _, name := range names {
		present = append(present, fields{"name": name, "weight": 1, "leads": count[name], "share": 21, "wants": 64})
	}
	for n, name := range names {
		var own []fields
		for _, of := range ranges {
			one := fields{}
			for field, value := range of {
				one[field] = value
			}
			if one["leader"] == name {
				one["state"], one["since"] = "leading", moment.Add(-time.Hour)
			}
			own = append(own, one)
		}
		replicas = append(replicas, madeReplica("root", name, name, 3, time.Hour, n+1, fields{"ranges": fields{"number": 64, "wanted": 64, "ranges": own, "replicas": present}}))
	}
	term := func(of int, term fields) fields {
		term["range"] = of
		return term
	}
	return answerOf(fields{"shards": []fields{{"name": "root", "clusters": 431, "capacity": 20000, "leader": "replica-0", "replicas": replicas, "terms": []fields{
		term(7, madeTerm(epoch, leader, time.Minute, 0, 0.021, "release", "", "")), term(5, madeTerm(3, "replica-2", 2*time.Minute, 0, 0.5, "death", "", "")),
		term(7, madeTerm(epoch-1, "replica-2", time.Hour, time.Hour-time.Minute, 0.009, "death", "step down", "step down: on request: asked by admin: a drill")),
	}}}})
}

func TestWhoLeadsWhichRangeIsOneGlance(t *testing.T) {
	p, m := openMade(t, dividedShard("replica-0", 3), 1)
	shown := `document.querySelector('.shard').innerText`
	for _, want := range []string{"64 RANGES, LED BY", "replica-0 leads 23", "(its share is 21)", "replica-1 leads 20", "0, 3, 6-7, 9", "last change, of range 7", "21 ms", "replica-2 stepped down"} {
		p.until("the page says "+want, `document.querySelector('.shard').innerText.toLowerCase().includes('`+strings.ToLower(want)+`')`)
	}
	if got := value[map[string]int](p, `Object.fromEntries([...document.querySelectorAll('.ranges > li')].map(li => [li.querySelector('strong').innerText, li.querySelectorAll('rect').length]))`); got["replica-0"] != 23 || got["replica-1"] != 20 || got["replica-2"] != 21 {
		t.Errorf("the ranges that are drawn of each replica: %v", got)
	}
	if got := value[string](p, `document.querySelector('.shard .dot').getAttribute('aria-label')`); got != "led" {
		t.Errorf("the shard is %q", got)
	}
	p.until("the controllers of all leaders count", `document.body.innerText.includes('33 controllers work on 3 replicas, which lead')`)
	p.until("the timeline is that of range 0, of which no term is known", `document.querySelector('#timeline').closest('section').innerText.includes('keep no history')`)
	p.do("pick range 7 in the timeline", evaluate(`(s => { s.value = '7'; s.dispatchEvent(new Event('change', {bubbles: true})); })(document.querySelector('#timeline').closest('section').querySelector('select'))`))
	p.until("the timeline is that of range 7", `document.querySelector('#timeline').closest('section').innerText.includes('2 terms')`)
	p.pictures("ranges")
	p.show(1280, "light")

	p.do("pick range 7", evaluate(`(s => { s.value = '7'; s.dispatchEvent(new Event('change', {bubbles: true})); })(document.querySelector('.range select'))`))
	p.until("it is told", shown+`.includes('is led by replica-0, in epoch 3, for 1h')`)
	p.click("Have replica-0 step down from range 7")
	p.until("it asks first", `document.querySelector('dialog[open]')`)
	p.click("Yes, step down")
	p.until("the term of that range is asked to end", `document.querySelector('.told').innerText.includes('replica-0 hands over')`)
	if got, _ := m.asked.Load().(string); got != "shard=root&epoch=3&range=7" {
		t.Errorf("it asked for %q", got)
	}
	m.answers.Store(dividedShard("", 3))
	p.until("nobody leads it", shown+`.includes('nobody: 7')`)
	if got := value[string](p, `document.querySelector('.shard .dot').getAttribute('aria-label')`); got != "nobody leads some ranges" {
		t.Errorf("the shard is %q", got)
	}
	m.answers.Store(dividedShard("replica-1", 4))
	p.until("the next leader is told", `document.querySelector('.told').innerText.includes('replica-1 leads range 7, 21 ms later')`)
	if text := value[string](p, `document.body.innerText`); strings.Contains(text, "undefined") || strings.Contains(text, "NaN") || strings.Contains(text, "[object") {
		t.Errorf("the page says:\n%s", text)
	}
}
