package fairness

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func countsOf(t *Tally) map[string]Counts {
	by := map[string]Counts{}
	busiest, _ := t.Read()
	for _, c := range busiest {
		by[c.Cluster] = c
	}
	return by
}

func TestATallyCountsWhatWasAnswered(t *testing.T) {
	tally := NewTally()
	for _, a := range []Answer{
		{200, false}, {201, true}, {403, true}, {403, false}, {412, true}, {422, true}, {429, true}, {429, false}, {404, true}, {500, true}, {503, false},
	} {
		tally.Add("a", noon, a)
	}
	tally.Hold("a", time.Second)
	tally.Hold("unknown", time.Minute)
	want := Counts{Cluster: "a", Since: noon, Requests: 11, Writes: 7, Refused: 4, Failed: 2, TooMany: 2, Held: time.Second}
	if got := countsOf(tally); len(got) != 1 || got["a"] != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	want.Cluster, want.Since, want.Held = "", time.Time{}, time.Second+time.Minute
	if _, all := tally.Read(); all != want {
		t.Errorf("all together %+v, want %+v", all, want)
	}
}

// A hundred thousand clusters that ask for one thing each do not have a busy one forgotten, and the table keeps its
// size.
func TestABusyClusterStaysKnownAmongManyIdleOnes(t *testing.T) {
	tally := NewTally()
	for n := range 100_000 {
		tally.Add(fmt.Sprint("idle-", n), noon, Answer{Status: http.StatusOK})
		if n%100 == 0 {
			tally.Add("busy", noon, Answer{Status: http.StatusOK})
		}
	}
	got := countsOf(tally)
	if len(got) != mostCounted || len(tally.at) != mostCounted {
		t.Errorf("%d clusters are known, %d indexed", len(got), len(tally.at))
	}
	if got["busy"].Requests != 1000 {
		t.Errorf("of the busy one it knows %+v, want all its requests", got["busy"])
	}
	if _, all := tally.Read(); all.Requests != 101_000 {
		t.Errorf("all together: %d", all.Requests)
	}
}

func TestAClusterThatWasBusyOnceIsForgottenForThoseThatAreBusyNow(t *testing.T) {
	tally := NewTally()
	for n := range mostCounted {
		for range 1000 {
			tally.Add(fmt.Sprint("before-", n), noon, Answer{Status: http.StatusOK})
		}
	}
	for n := range 60 { // time passes, in which hardly anybody asks: the ranks fade
		tally.Add("now-0", noon.Add(time.Duration(n)*halfLife), Answer{Status: http.StatusOK})
	}
	for n := range mostCounted {
		tally.Add(fmt.Sprint("now-", n), noon.Add(time.Hour), Answer{Status: http.StatusOK})
	}
	before := 0
	for n := range mostCounted {
		if _, there := countsOf(tally)[fmt.Sprint("before-", n)]; there {
			before++
		}
	}
	if before > 0 {
		t.Errorf("%d clusters that were busy an hour ago are known", before)
	}
}

// What is counted of each request must cost next to nothing: below 200 ns, and no allocation.
func TestCountingARequestOfAKnownClusterAllocatesNothing(t *testing.T) {
	tally := NewTally()
	tally.Add("a", noon, Answer{Status: http.StatusOK})
	if n := testing.AllocsPerRun(100, func() {
		tally.Add("a", noon, Answer{Status: http.StatusOK, Write: true})
		tally.Hold("a", time.Millisecond)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkTally(b *testing.B) {
	names := make([]string, 100_000)
	for n := range names {
		names[n] = fmt.Sprint("cluster-", n)
	}
	for _, clusters := range []int{1, mostCounted, len(names)} {
		b.Run(fmt.Sprintf("clusters=%d", clusters), func(b *testing.B) {
			tally, n := NewTally(), 0
			b.ReportAllocs()
			for b.Loop() {
				name := names[n%clusters]
				tally.Add(name, noon, Answer{Status: http.StatusOK, Write: true})
				tally.Hold(name, time.Millisecond)
				n++
			}
		})
	}
}
