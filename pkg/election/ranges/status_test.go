package ranges

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/internal/series/seriestest"
)

// Whoever is asked knows who leads which range, who should, and who is there.
func TestTheStatusTellsOfAllRangesAndProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore("group")
		reach := func(url string, weight int) func(*election.Config) {
			return func(cfg *election.Config) { cfg.URL, cfg.Weight = url, weight }
		}
		a := join(t, store, "a", 9, reach("https://a", 2))
		time.Sleep(moment)
		b := join(t, store, "b", 9, reach("https://b", 0))
		time.Sleep(moment)
		want := []Process{
			{Names: election.Names{Replica: "a", Instance: "a_1"}, URL: "https://a", Weight: 2, Leads: 9, Share: 6, Wants: 9},
			{Names: election.Names{Replica: "b", Instance: "b_1"}, URL: "https://b", Weight: 1, Share: 3, Wants: 9},
		}
		for _, p := range []*process{a, b} {
			if diff := cmp.Diff(want, p.Status().Processes); diff != "" {
				t.Errorf("before the shares are even, (-want +got):\n%s", diff)
			}
		}
		time.Sleep(4 * lasts)
		want[0].Leads, want[1].Leads = 6, 3
		for _, p := range []*process{a, b} {
			s := p.Status()
			if diff := cmp.Diff(want, s.Processes); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for k, r := range s.Ranges {
				if one, ok := p.Range(k); !ok || one.Epoch != r.Epoch || one.LeaderInstance != r.LeaderInstance || one.Assigned != r.Assigned {
					t.Errorf("%s says of range %d alone: %+v, %t, and of all: %+v", p.name, k, one, ok, r)
				}
				if _, leads := p.share()[k]; r.LeaderInstance != r.Assigned || leads != (r.State == leading) || leads != (r.Assigned == p.name+"_1") {
					t.Errorf("%s says of range %d, which it leads: %v, that it is %s, led by %s, and assigned to %s", p.name, k, leads, r.State, r.LeaderInstance, r.Assigned)
				}
			}
		}
		for _, k := range []int{-1, 9} {
			if _, ok := a.Range(k); ok {
				t.Errorf("there is a range %d", k)
			}
		}
		a.stop()
		b.stop()
	})
}

// However many ranges there are, the metrics show one election.
func TestTheMetricsShowTheElectionAndNotItsRanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore("counted")
		p := join(t, store, "a", 9, func(cfg *election.Config) { cfg.Name = "counted" })
		time.Sleep(moment)
		value := func(name string, values ...string) float64 {
			return seriestest.Value(t, name, append([]string{"counted"}, values...)...)
		}
		// one more, in which the number was changed
		if led, epochs, began := value("leader_election_master_status"), value("regent_election_epoch"), value("regent_election_terms_started_total"); led != 9 || epochs != 9 || began != 10 {
			t.Errorf("leads %v of 9, the epochs add up to %v, %v terms have begun", led, epochs, began)
		}
		if _, err := p.StepDown(3, "try", ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(moment)
		if led, without := value("leader_election_master_status"), value("regent_election_seconds_without_leader"); led != 8 || without != moment.Seconds() {
			t.Errorf("when one range has no leader it leads %v, and one has been without for %v s", led, without)
		}
		for k := range 9 {
			if n := seriestest.Count("name", Range{k, 9}.leaseName("counted")); n != 0 {
				t.Errorf("%d series of range %d", n, k)
			}
		}
		p.stop()
		ended := value("regent_election_terms_ended_total", string(election.Shutdown)) + value("regent_election_terms_ended_total", string(election.Deposed))
		if led := value("leader_election_master_status"); led != 0 || ended != 9 {
			t.Errorf("when it has stopped it leads %v, and %v terms have ended so", led, ended)
		}
		p.Close()
		if n := seriestest.Count("name", "counted"); n != 0 {
			t.Errorf("%d series are left", n)
		}
	})
}
