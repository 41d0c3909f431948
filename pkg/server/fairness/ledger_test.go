package fairness

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const (
	ledgerSize   = 1000
	ledgerWindow = 160 * time.Second
)

var ledgerStart = epoch.Add(ledgerWindow)

// sumOf returns what was written by all persons within the window.
func sumOf(l *Ledger, now time.Time) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance(now)
	return l.all.sum
}

// writesUntilExcess returns how many bytes somebody can write at once.
func writesUntilExcess(l *Ledger, now time.Time, tenant, person string) (bytes int64) {
	for bytes <= 2*ledgerSize {
		if _, ok := l.Excess(now, tenant, person); ok {
			return bytes
		}
		l.Write(now, tenant, person, 10)
		bytes += 10
	}
	return bytes
}

func TestATenantAloneWritesHalfAndTheNextHalfOfTheRest(t *testing.T) {
	l := NewLedger(ledgerSize, ledgerWindow)
	for n, want := range []int64{510, 250, 130} { // one write more than what is as much as others have left
		if got := writesUntilExcess(l, ledgerStart, fmt.Sprint("tenant", n), fmt.Sprint("person", n)); got != want {
			t.Errorf("tenant %d wrote %d of %d bytes, want %d", n, got, ledgerSize, want)
		}
	}
	e, ok := l.Excess(ledgerStart, "tenant0", "")
	if want := (Excess{Written: 510, Left: 110, Window: ledgerWindow, RetryAfter: 10 * time.Second}); !ok || e != want {
		t.Errorf("%+v, %t; want %+v", e, ok, want)
	}
	if _, ok := l.Excess(ledgerStart, "quiet", "quiet"); ok {
		t.Error("who has written nothing is held up")
	}
}

// What controllers and operators write in tenants is nobody's, and holds up nobody who writes little.
func TestWhoWritesLittleIsNeverHeldUp(t *testing.T) {
	const size = 1 << 20
	l := NewLedger(size, ledgerWindow)
	l.Write(ledgerStart, "restored", "", 10*size)
	l.Write(ledgerStart, "ann", "ann", size/4)
	if e, ok := l.Excess(ledgerStart, "ann", "ann"); ok {
		t.Errorf("beside a restore: %+v", e)
	}
	if _, ok := l.Excess(ledgerStart, "restored", "bob"); !ok {
		t.Error("where too much was written, more may be written")
	}
	l.Write(ledgerStart, "eve", "eve", 10*size)
	l.Write(ledgerStart, "small", "bob", size/little)
	if e, ok := l.Excess(ledgerStart, "small", "bob"); ok {
		t.Errorf("beside somebody who has written all: %+v", e)
	}
}

// Everybody may make workspaces.
func TestAPersonWritesNoMoreInManyTenantsThanInOne(t *testing.T) {
	l := NewLedger(ledgerSize, ledgerWindow)
	for n := range 100 {
		l.Write(ledgerStart, fmt.Sprint("tenant", n), "eve", 6)
	}
	if e, ok := l.Excess(ledgerStart, "another", "eve"); !ok || !e.ByPerson || e.Written != 600 {
		t.Errorf("%+v, %t", e, ok)
	}
	if e, ok := l.Excess(ledgerStart, "tenant1", "ann"); ok {
		t.Errorf("another person in one of them: %+v", e)
	}
}

func TestWhatWasWrittenCountsForTheWindow(t *testing.T) {
	l := NewLedger(ledgerSize, ledgerWindow)
	writesUntilExcess(l, ledgerStart, "a", "p")
	for after, want := range map[time.Duration]bool{0: true, -time.Minute: true, ledgerWindow - ledgerWindow/slots - 1: true} {
		if _, ok := l.Excess(ledgerStart.Add(after), "a", ""); ok != want {
			t.Errorf("after %v: excess %t, want %t", after, ok, want)
		}
	}
	if _, ok := l.Excess(ledgerStart.Add(ledgerWindow), "a", "p"); ok || sumOf(l, ledgerStart.Add(ledgerWindow)) != 0 {
		t.Errorf("after the window: excess %t, %d bytes", ok, sumOf(l, ledgerStart.Add(ledgerWindow)))
	}
	if len(l.tenants)+len(l.persons) > 0 {
		t.Errorf("%v and %v are kept", l.tenants, l.persons)
	}
}

// Whatever is written when: the sums are those of the window, and what was forgotten is gone.
func TestALedgerKnowsWhatWasWrittenInTheWindow(t *testing.T) {
	type write struct {
		at     time.Time
		tenant string
		bytes  int64
	}
	rapid.Check(t, func(t *rapid.T) {
		l, now := NewLedger(ledgerSize, ledgerWindow), ledgerStart
		var all []write
		for range rapid.IntRange(1, 50).Draw(t, "writes") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(2*ledgerWindow)).Draw(t, "pause")) >> rapid.IntRange(0, 8).Draw(t, "shorter"))
			w := write{now, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant"), rapid.Int64Range(0, ledgerSize).Draw(t, "bytes")}
			l.Write(w.at, w.tenant, w.tenant, w.bytes)
			all = append(all, w)
			const part = ledgerWindow / slots
			sums, sum := map[string]int64{}, int64(0)
			for _, w := range all {
				if now.Sub(epoch)/part-w.at.Sub(epoch)/part < slots {
					sums[w.tenant] += w.bytes
					sum += w.bytes
				}
			}
			if got := sumOf(l, now); got != sum {
				t.Fatalf("%d bytes in all, want %d", got, sum)
			}
			for _, accounts := range []map[string]*account{l.tenants, l.persons} {
				for name, a := range accounts {
					if a.advance(l.slot); a.sum != sums[name] {
						t.Fatalf("%s: %d bytes, want %d", name, a.sum, sums[name])
					}
				}
			}
		}
	})
}
