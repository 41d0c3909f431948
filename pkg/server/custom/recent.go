package custom

import (
	"container/list"

	"github.com/kcp-dev/logicalcluster/v3"
)

// recent has what was used last, by its key, within bounds. Each entry is charged to a logical cluster that uses it,
// the one that has least. What is too much is taken from the cluster that has most: what that has not used for longest.
// So a cluster that uses much drops what is its own, and nobody else waits until it is made again (I18). Make it with
// newRecent.
type recent[K comparable, V any] struct {
	most, mostBytes int
	entries         map[K]*list.Element // of *entry, in the list of its account
	accounts        map[logicalcluster.Name]*account
	bytes           int
}

// An account is what is charged to a cluster.
type account struct {
	cluster logicalcluster.Name
	used    list.List // the one used last in front
	bytes   int
}

type entry[K comparable, V any] struct {
	key   K
	value V
	size  int
	of    *account
}

// ofOne is the part of the bounds that one cluster has at most: a half.
const ofOne = 2

// newRecent returns what keeps so many entries, and so many bytes. One entry is kept, however large it is.
func newRecent[K comparable, V any](most, mostBytes int) recent[K, V] {
	return recent[K, V]{most: most, mostBytes: mostBytes, entries: map[K]*list.Element{}, accounts: map[logicalcluster.Name]*account{}}
}

// use returns an entry that a cluster uses now.
func (r *recent[K, V]) use(by logicalcluster.Name, key K) (value V, ok bool) {
	at := r.entries[key]
	if at == nil {
		return value, false
	}
	e := at.Value.(*entry[K, V])
	e.of.used.MoveToFront(at)
	if e.of.cluster != by && r.weight(r.accounts[by])+r.weightOf(1, e.size) < r.weight(e.of) {
		r.remove(key)
		r.charge(by, e)
	}
	return e.value, true
}

// add adds an entry that a cluster uses now, or replaces it, and returns the values of those that are dropped for it.
func (r *recent[K, V]) add(by logicalcluster.Name, key K, value V, size int) (dropped []V) {
	r.remove(key)
	r.charge(by, &entry[K, V]{key: key, value: value, size: size})
	for {
		from := r.tooMuch(key)
		if from == nil {
			return dropped
		}
		e := from.used.Back().Value.(*entry[K, V])
		r.remove(e.key)
		dropped = append(dropped, e.value)
	}
}

// tooMuch returns the account from which an entry is to be dropped, if one is: any but the newest.
func (r *recent[K, V]) tooMuch(newest K) (from *account) {
	for _, a := range r.accounts {
		if a.used.Len() == 1 && a.used.Front().Value.(*entry[K, V]).key == newest {
			continue
		}
		if from == nil || r.weight(a) > r.weight(from) {
			from = a
		}
	}
	if from == nil || len(r.entries) <= r.most && r.bytes <= r.mostBytes && ofOne*r.weight(from) <= 1 {
		return nil
	}
	return from
}

// weight returns which part of the bounds an account has.
func (r *recent[K, V]) weight(a *account) float64 {
	if a == nil {
		return 0
	}
	return r.weightOf(a.used.Len(), a.bytes)
}

func (r *recent[K, V]) weightOf(entries, bytes int) float64 {
	return max(float64(entries)/float64(r.most), float64(bytes)/float64(r.mostBytes))
}

func (r *recent[K, V]) charge(to logicalcluster.Name, e *entry[K, V]) {
	a := r.accounts[to]
	if a == nil {
		a = &account{cluster: to}
		r.accounts[to] = a
	}
	e.of = a
	r.entries[e.key] = a.used.PushFront(e)
	a.bytes += e.size
	r.bytes += e.size
}

// remove removes an entry, if it is there.
func (r *recent[K, V]) remove(key K) {
	at := r.entries[key]
	if at == nil {
		return
	}
	e := at.Value.(*entry[K, V])
	e.of.used.Remove(at)
	e.of.bytes -= e.size
	r.bytes -= e.size
	if e.of.used.Len() == 0 {
		delete(r.accounts, e.of.cluster)
	}
	delete(r.entries, key)
}
