package endpoints

import (
	"fmt"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/ranges"
	"github.com/regent-project/regent/pkg/server/status"
)

// Leadership says who leads the shard, or each of its ranges, and ends this replica's terms. It is a *ranges.Group, or
// that of OfLease.
type Leadership interface {
	// Status returns what is known now. It makes no request.
	Status() ranges.Status
	// Range returns what Status says of one range. It is not ok while this replica waits.
	Range(index int) (r ranges.RangeStatus, ok bool)
	// StepDown asks this replica's term of a range to end: see election.Elector.StepDown.
	StepDown(index int, reason, to string) (election.Term, error)
}

// OfLease returns the Leadership of a shard with one leader: it has one range.
func OfLease(e *election.Elector) Leadership { return whole{e} }

type whole struct{ elector *election.Elector }

func (w whole) Status() ranges.Status {
	return ranges.Status{Number: 1, Wanted: 1, Ranges: []ranges.RangeStatus{{Status: w.elector.Status()}}}
}

func (w whole) Range(index int) (ranges.RangeStatus, bool) {
	return ranges.RangeStatus{Status: w.elector.Status()}, index == 0
}

func (w whole) StepDown(index int, reason, to string) (election.Term, error) {
	if index != 0 {
		return election.Term{}, fmt.Errorf("%w: range %d", election.ErrNotLeading, index)
	}
	return w.elector.StepDown(reason, to)
}

// StatusOf returns what is known of the Lease of a range. While this replica waits it is in no range's election.
func StatusOf(l Leadership, index int) election.Status {
	if r, ok := l.Range(index); ok {
		return r.Status
	}
	return election.Status{Mode: election.ByPresence{}.Name(), State: waits, Held: l.Status().Waits}
}

// waits is the state of a replica that is in no range's election.
const waits = "stopped"

// rangesOf returns what is known of all ranges; nil: there is one, and nobody wants more.
func rangesOf(s ranges.Status) *status.Ranges {
	if s.Number <= 1 && s.Wanted <= 1 && s.Waits == "" {
		return nil
	}
	out := &status.Ranges{Number: s.Number, Wanted: s.Wanted, Waits: s.Waits}
	for k, r := range s.Ranges {
		out.Ranges = append(out.Ranges, status.Range{
			Range: k, State: r.State, Epoch: r.Epoch, Leader: r.Leader, LeaderInstance: r.LeaderInstance, LeaderURL: r.LeaderURL, Assigned: r.Assigned, Since: r.Began,
			Trigger: string(r.Trigger), Leaderless: r.Leaderless.Seconds(), LastStepDown: r.LastStepDown,
		})
	}
	for _, p := range s.Processes {
		out.Replicas = append(out.Replicas, status.RangeReplica{Name: p.Replica, Instance: p.Instance, URL: p.URL, Weight: p.Weight, Leads: p.Leads, Share: p.Share, Wants: p.Wants})
	}
	return out
}
