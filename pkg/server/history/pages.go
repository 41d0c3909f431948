package history

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/regent-project/regent/pkg/server/status"
)

const (
	// perPage is how many entries a page has at most, and slots how many ConfigMaps there are: room for Most while
	// one page begins anew.
	perPage, slots = 16, Most/perPage + 1
	// mostBytes is how large the entries of a page may be together. Each has some 700 bytes.
	mostBytes = 16 << 10
	// longestEntry is how many bytes an entry may have.
	longestEntry = 8 << 10
	// digits is the length of a key, highest the highest number that counts: nobody writes so many.
	digits, highest = 10, 9_000_000_000
	// mostBefore is how many terms before its own an Entry has at most.
	mostBefore = 3
	// mostRead is how many entries are read before one is written.
	mostRead = 4 * perPage
)

// pages are what the ConfigMaps have, by slot. Each entry has a number, one higher than that of the entry before it,
// which is its key. The first perPage numbers belong to the first page, and so on. The pages take the slots by turns,
// so the latest page replaces the oldest one. A write concerns one page only: caches of a replica keep the states of
// many writes.
type pages map[int]map[string]string

// numbers returns the numbers of what may be entries, in their order.
func (p pages) numbers() (out []int64) {
	for slot, data := range p {
		for key, text := range data {
			number, err := strconv.ParseInt(key, 10, 64)
			if err == nil && key == keyOf(number) && number >= 1 && number <= highest && slotOf(number) == slot && len(text) <= longestEntry {
				out = append(out, number)
			}
		}
	}
	slices.Sort(out)
	return out
}

// parse returns the entries of some numbers. Whatever else somebody has written there is left out.
func (p pages) parse(numbers []int64) (out []Entry) {
	for _, number := range numbers {
		var e Entry
		if err := json.Unmarshal([]byte(p.text(number)), &e); err == nil && e.Epoch >= 1 && e.Holder != "" {
			out = append(out, e.clipped())
		}
	}
	return out
}

// entries returns the latest entries, at most Most, the oldest first.
func (p pages) entries() []Entry {
	all := p.numbers()
	return p.parse(all[max(0, len(all)-Most):])
}

func (p pages) text(number int64) string { return p[slotOf(number)][keyOf(number)] }

// withAll returns the pages as they are when entries have been added, and the slots of those that are others then, in
// the order in which they are to be written.
func (p pages) withAll(entries []Entry) (full pages, changed []int) {
	full = maps.Clone(p)
	for _, e := range entries {
		slot, page, added := full.with(e)
		if !added {
			continue
		}
		full[slot] = page
		if !slices.Contains(changed, slot) {
			changed = append(changed, slot)
		}
	}
	return full, changed
}

// latestOf returns the latest entries of a range, at most as many as a new one needs to know. It reads few of all: they
// may be many, and of many ranges.
func (p pages) latestOf(index int, numbers []int64) (out []Entry) {
	for _, number := range slices.Backward(numbers[max(0, len(numbers)-mostRead):]) {
		for _, e := range p.parse([]int64{number}) {
			if e.Range == index {
				out = append(out, e)
			}
		}
		if len(out) > mostBefore {
			break
		}
	}
	return out
}

// with returns the page to which an entry is to be added, as it is then, and its slot. It returns false if the entry is
// there already.
func (p pages) with(e Entry) (slot int, page map[string]string, added bool) {
	all := p.numbers()
	latest := p.latestOf(e.Range, all)
	if slices.ContainsFunc(latest, func(l Entry) bool { return l.Term.Is(e.Term) }) {
		return 0, nil, false
	}
	e.Before = slices.DeleteFunc(slices.Clone(e.Before), func(b status.Term) bool { return isTold(latest, b) })
	text := e.json()
	if len(text) > longestEntry { // somebody has written odd names on the Lease: the term itself is told of anyway
		e.Before = nil
		text = e.json()
	}
	next := int64(1)
	if n := len(all); n > 0 {
		next = all[n-1] + 1
	}
	if next > highest { // somebody has written the highest number: the page that has it begins anew
		next = firstOf(int64(slotOf(highest)))
	}
	page, size := map[string]string{}, len(text)
	for _, number := range all {
		if pageOf(number) == pageOf(next) && number < next {
			page[keyOf(number)] = p.text(number)
			size += len(p.text(number))
		}
	}
	if size > mostBytes && len(page) > 0 {
		next, page = firstOf(pageOf(next)+1), map[string]string{}
	}
	page[keyOf(next)] = text
	return slotOf(next), page, true
}

func (e Entry) json() string {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err) // it has only numbers, times and text
	}
	return string(text)
}

func keyOf(number int64) string { return fmt.Sprintf("%0*d", digits, number) }

// pageOf returns the page of a number: 0 is the first one that there ever was.
func pageOf(number int64) int64 { return (number - 1) / perPage }

// firstOf returns the first number of a page.
func firstOf(page int64) int64 { return page*perPage + 1 }

func slotOf(number int64) int { return int(pageOf(number) % slots) }

// nameOf returns the name of the ConfigMap of a slot.
func nameOf(slot int) string { return fmt.Sprintf("%s-%02d", Name, slot) }

// slotNamed returns the slot of a ConfigMap, and whether it has one.
func slotNamed(name string) (int, bool) {
	slot, err := strconv.Atoi(strings.TrimPrefix(name, Name+"-"))
	return slot, err == nil && slot >= 0 && slot < slots && name == nameOf(slot)
}

// isTold reports whether an entry says why a term ended.
func isTold(entries []Entry, t status.Term) bool {
	return slices.ContainsFunc(entries, func(e Entry) bool {
		return slices.ContainsFunc(e.Before, func(b status.Term) bool { return b.Is(t) && b.EndCause != "" })
	})
}
