package election

import (
	"math"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// someDetector is a Detector of which only the presence counts.
type someDetector struct{ Detector }

// holds is a Lease of uid "u" that "h" holds in epoch 5, and that says this of its holder.
func holds(p lease.Presence) *coordinationv1.Lease {
	l := leaseOf("h", 5, 0)
	p.Holder = "h"
	if p.ElectionMode == "" {
		p.ElectionMode = lease.Renewed
	}
	if !p.ElectionMode.Expires() {
		l.Spec.RenewTime = nil
	}
	p.WriteTo(l)
	return l
}

// free is the same Lease after "h" gave it up.
func free(left lease.Presence, mode ModeName) *coordinationv1.Lease {
	return lease.Freed(holds(lease.Presence{ElectionMode: mode}), left)
}

// shows is what a standby has seen since noon, at revision 7.
func shows(l *coordinationv1.Lease) lease.Observation {
	seen := lease.Observation{Lease: l, Revision: "7", Since: noon, TermSince: noon, Before: 4, Highest: 5, Mode: lease.Renewed}
	if p, some := lease.PresenceOn(l); some {
		seen.Mode = p.ElectionMode
	}
	return seen
}

func TestWhatAStandbyDoes(t *testing.T) {
	const secondsOfAnHour = 3600
	fenced := lease.Presence{Fencing: lease.Fenced}
	long := holds(fenced)
	long.Spec.LeaseDurationSeconds = ptr.To[int32](secondsOfAnHour)
	last := holds(fenced)
	last.Spec.LeaseTransitions = ptr.To[int32](math.MaxInt32)
	inEpoch := func(l *coordinationv1.Lease, holder string) *coordinationv1.Lease {
		l = l.DeepCopy()
		l.Spec.HolderIdentity, l.Spec.LeaseTransitions = ptr.To(holder), ptr.To[int32](6)
		return l
	}
	preferring := inEpoch(holds(fenced), "me-1")
	preferring.Spec.Strategy, preferring.Spec.PreferredHolder = ptr.To(coordinationv1.OldestEmulationVersion), ptr.To("other")

	is := func(sign Sign) func(*Config, *situation) {
		return func(_ *Config, s *situation) { s.holder.news = News{Sign: sign, Since: noon} }
	}
	and := func(changes ...func(*Config, *situation)) func(*Config, *situation) {
		return func(c *Config, s *situation) {
			for _, change := range changes {
				change(c, s)
			}
		}
	}
	bothFenced := func(_ *Config, s *situation) { s.holder.fenced = true }
	suspect := func(_ *Config, s *situation) { s.holder.suspect = true }
	risked := func(_ *Config, s *situation) { s.holder.risked = true }
	rests := func(lastEpoch int64) func(*Config, *situation) {
		return func(_ *Config, s *situation) { s.pace.rested, s.lastEpoch = noon.Add(4*time.Second), lastEpoch }
	}
	preempts := func(able time.Duration) func(*Config, *situation) {
		return and(is(Alive), func(c *Config, s *situation) { c.Preempt, c.Priority, s.wish.able = true, 2, noon.Add(-able) })
	}
	winnableFor := func(d time.Duration, trigger Trigger) func(*Config, *situation) {
		return func(_ *Config, s *situation) {
			s.winnable = winnable{since: s.now.Add(-d), first: verdict{trigger: trigger}, after: 5}
		}
	}
	coordinated := func(c *Config, s *situation) { c.Mode, s.holder.candidate = Coordinated{}, "me-1" }
	forLife := func(c *Config, _ *situation) { c.Mode = ForLife{} }
	told := func(say announcements) func(*Config, *situation) {
		return func(_ *Config, s *situation) { s.told = say }
	}

	type want struct {
		do       action
		trigger  Trigger
		again    time.Duration // since noon; 0: no time changes it
		nominate nomination
		remarks  []remark
	}
	waitFor := func(again time.Duration) want { return want{do: wait, again: again} }
	takes := func(trigger Trigger) want { return want{do: win, trigger: trigger} }
	otherMode := []remark{modeIsOther}
	mayNot := func(again time.Duration) want { return want{do: wait, again: again, remarks: []remark{mayNotAct}} }

	untried := slices.Clone(Triggers)
	for name, test := range map[string]struct {
		lease *coordinationv1.Lease
		at    time.Duration // since noon
		given func(*Config, *situation)
		want  want
	}{
		"nothing is known":       {given: func(_ *Config, s *situation) { s.seen = lease.Observation{} }, want: waitFor(0)},
		"no Lease":               {given: func(_ *Config, s *situation) { s.seen.Highest = 0 }, want: takes(TriggerNone)},
		"the Lease was deleted":  {want: takes(TriggerDeletion)},
		"free":                   {lease: free(fenced, lease.Renewed), want: takes(TriggerRelease)},
		"held":                   {lease: holds(fenced), want: waitFor(15 * time.Second)},
		"held, by its own words": {lease: long, want: waitFor(time.Minute)},
		"expired":                {lease: holds(fenced), at: 15 * time.Second, want: takes(TriggerExpiry)},
		"held by an identity of this process in no term": {lease: holds(fenced), given: func(_ *Config, s *situation) { s.holder.mine = true }, want: want{do: clear}},

		"dead, as its file proves":                          {lease: holds(lease.Presence{}), given: func(_ *Config, s *situation) { s.holder.dead = true }, want: takes(TriggerDeath)},
		"dead, as its address says":                         {lease: holds(fenced), given: and(bothFenced, is(Dead)), want: takes(TriggerDeath)},
		"dead, as its address says, and not fenced":         {lease: holds(lease.Presence{}), given: is(Dead), want: mayNot(15 * time.Second)},
		"dead, as its address says, which both accept":      {lease: holds(lease.Presence{}), given: and(risked, is(Dead)), want: takes(TriggerDeath)},
		"dead, as its address said too often":               {lease: holds(lease.Presence{}), given: and(risked, is(Dead), func(_ *Config, s *situation) { s.holder.suspicions = 1 }), want: mayNot(5 * time.Second)},
		"silent, and both accept a refusal":                 {lease: holds(lease.Presence{}), given: and(risked, suspect, is(Silent)), want: mayNot(15 * time.Second)},
		"held for life, dead, which both accept (they lie)": {lease: holds(lease.Presence{ElectionMode: lease.ForLife}), given: and(forLife, risked, is(Dead)), want: waitFor(15 * time.Second)},
		"silent":                              {lease: holds(fenced), given: and(bothFenced, is(Silent)), want: mayNot(15 * time.Second)},
		"silent, which is enough":             {lease: holds(fenced), given: and(bothFenced, suspect, is(Silent)), want: takes(TriggerSuspicion)},
		"silent, which was said too often":    {lease: holds(fenced), given: and(bothFenced, suspect, is(Silent), func(_ *Config, s *situation) { s.holder.suspicions = 1 }), want: mayNot(5 * time.Second)},
		"it says that its term is over":       {lease: holds(fenced), given: func(_ *Config, s *situation) { s.holder.news.Said = Statement{Holder: "h", Condition: Over} }, want: takes(TriggerStepAside)},
		"it says that another's term is over": {lease: holds(fenced), given: func(_ *Config, s *situation) { s.holder.news.Said = Statement{Holder: "g", Condition: Over} }, want: waitFor(15 * time.Second)},
		"on this machine":                     {lease: holds(fenced), given: func(_ *Config, s *situation) { s.holder.near = true }, want: waitFor(2 * time.Second)},
		"on this machine, contact has just broken off": {
			lease: holds(lease.Presence{}), at: 100 * time.Millisecond, given: and(is(Dead), func(_ *Config, s *situation) { s.holder.near = true }),
			want: waitFor(150 * time.Millisecond),
		},
		"on this machine, contact broke off, and its file proves nothing": {
			lease: holds(lease.Presence{}), at: 500 * time.Millisecond, given: and(is(Dead), func(_ *Config, s *situation) { s.holder.near = true }),
			want: mayNot(750 * time.Millisecond),
		},

		"free after its own term, which failed":   {lease: free(fenced, lease.Renewed), given: rests(5), want: waitFor(4 * time.Second)},
		"free after another's term":               {lease: free(fenced, lease.Renewed), given: rests(4), want: takes(TriggerRelease)},
		"free after another's term, which failed": {lease: free(lease.Presence{Failed: true}, lease.Renewed), given: rests(4), want: waitFor(4 * time.Second)},
		"expired, it rests":                       {lease: holds(fenced), at: 15 * time.Second, given: and(rests(5), func(_ *Config, s *situation) { s.pace.rested = noon.Add(20 * time.Second) }), want: waitFor(20 * time.Second)},
		"a write on this revision has failed": {
			lease: free(fenced, lease.Renewed), given: func(_ *Config, s *situation) { s.pace.tried, s.pace.retryAt = "7", noon.Add(time.Second) }, want: waitFor(time.Second),
		},
		"a write on another revision has failed": {
			lease: free(fenced, lease.Renewed), given: func(_ *Config, s *situation) { s.pace.tried, s.pace.retryAt = "6", noon.Add(time.Second) }, want: takes(TriggerRelease),
		},
		"to clear an identity has failed": {
			lease: holds(fenced), given: func(_ *Config, s *situation) {
				s.holder.mine, s.pace.tried, s.pace.retryAt = true, "7", noon.Add(time.Second)
			}, want: waitFor(time.Second),
		},
		"to clear an identity does not rest": {lease: holds(fenced), given: and(rests(5), func(_ *Config, s *situation) { s.holder.mine = true }), want: want{do: clear}},

		"another is preferred":                    {lease: free(lease.Presence{Preferred: "other"}, lease.Renewed), want: waitFor(500 * time.Millisecond)},
		"another was preferred":                   {lease: free(lease.Presence{Preferred: "other"}, lease.Renewed), at: 500 * time.Millisecond, want: takes(TriggerRelease)},
		"this one is preferred, another is first": {lease: free(lease.Presence{Preferred: "me", StandbyPriority: 9}, lease.Renewed), want: takes(TriggerRelease)},
		"another is first":                        {lease: free(lease.Presence{StandbyPriority: 1}, lease.Renewed), want: waitFor(500 * time.Millisecond)},
		"another was first": {
			lease: free(lease.Presence{StandbyPriority: 1}, lease.Renewed), at: time.Second, given: winnableFor(500*time.Millisecond, TriggerRelease), want: takes(TriggerRelease),
		},
		"another is no less first": {lease: free(lease.Presence{StandbyPriority: 1}, lease.Renewed), given: func(c *Config, _ *situation) { c.Priority = 1 }, want: takes(TriggerRelease)},
		"another is first, and dead": {
			lease: holds(lease.Presence{StandbyPriority: 1}), given: func(_ *Config, s *situation) { s.holder.dead = true }, want: waitFor(500 * time.Millisecond),
		},

		"held in another mode": {lease: holds(lease.Presence{ElectionMode: lease.Coordinated}), want: want{do: wait, again: 15 * time.Second, remarks: otherMode}},
		"held in another mode, as was told": {
			lease: holds(lease.Presence{ElectionMode: lease.Coordinated}), given: told(announcements{mode: lease.Coordinated}), want: waitFor(15 * time.Second),
		},
		"held in this mode again":                   {lease: holds(fenced), given: told(announcements{mode: lease.Coordinated}), want: want{do: wait, again: 15 * time.Second, remarks: []remark{modeIsOurs}}},
		"free, of mode for-life":                    {lease: free(fenced, lease.ForLife), want: want{do: wait, again: 4 * time.Second, remarks: otherMode}},
		"free, of mode coordinated":                 {lease: free(fenced, lease.Coordinated), want: want{do: wait, again: 9 * time.Second, remarks: otherMode}},
		"free, of another mode, for long":           {lease: free(fenced, lease.ForLife), given: winnableFor(4*time.Second, TriggerRelease), want: want{do: win, trigger: TriggerRelease, remarks: otherMode}},
		"free, of another mode, by the last of it":  {lease: free(lease.Presence{Alone: true}, lease.ForLife), want: want{do: win, trigger: TriggerRelease, remarks: otherMode}},
		"without election, no mode is another":      {lease: free(fenced, lease.ForLife), given: func(c *Config, _ *situation) { c.unelected = true }, want: takes(TriggerRelease)},
		"without election, it rests after any term": {lease: free(fenced, lease.Renewed), given: and(rests(1), func(c *Config, _ *situation) { c.unelected = true }), want: waitFor(4 * time.Second)},

		"it could have led for a lease duration":           {lease: holds(lease.Presence{Priority: 1}), given: preempts(15 * time.Second), want: want{do: ask}},
		"it could have led for a while":                    {lease: holds(lease.Presence{Priority: 1}), given: preempts(5 * time.Second), want: waitFor(10 * time.Second)},
		"it rested meanwhile":                              {lease: holds(lease.Presence{Priority: 1}), given: and(preempts(15*time.Second), rests(5)), want: waitFor(15 * time.Second)},
		"its last two terms failed":                        {lease: holds(lease.Presence{Priority: 1}), given: and(preempts(15*time.Second), func(_ *Config, s *situation) { s.pace.failures = 2 }), want: waitFor(15 * time.Second)},
		"its last two terms failed, long ago":              {lease: holds(lease.Presence{Priority: 1}), given: and(preempts(time.Minute), func(_ *Config, s *situation) { s.pace.failures = 2 }), want: want{do: ask}},
		"it asked not long ago":                            {lease: holds(lease.Presence{Priority: 1}), given: and(preempts(time.Hour), func(_ *Config, s *situation) { s.wish.asked = noon.Add(-5 * time.Second) }), want: waitFor(10 * time.Second)},
		"it could not ask":                                 {lease: holds(lease.Presence{Priority: 1}), given: and(preempts(time.Hour), func(_ *Config, s *situation) { s.wish.tried = noon }), want: waitFor(500 * time.Millisecond)},
		"the leader has the same priority":                 {lease: holds(lease.Presence{Priority: 2}), given: preempts(time.Hour), want: waitFor(15 * time.Second)},
		"the leader is silent, nobody asks it":             {lease: holds(lease.Presence{Priority: 1}), given: and(preempts(time.Hour), is(Silent)), want: mayNot(15 * time.Second)},
		"it does not preempt":                              {lease: holds(lease.Presence{Priority: 1}), given: and(preempts(time.Hour), func(c *Config, _ *situation) { c.Preempt = false }), want: waitFor(15 * time.Second)},
		"the leader leads in another mode, nobody asks it": {lease: holds(lease.Presence{ElectionMode: lease.Coordinated}), given: preempts(time.Hour), want: want{do: wait, again: 15 * time.Second, remarks: otherMode}},

		"a candidate, held":    {lease: holds(lease.Presence{ElectionMode: lease.Coordinated}), given: coordinated, want: want{do: wait, again: 15 * time.Second, nominate: stand}},
		"a candidate, free":    {lease: free(fenced, lease.Coordinated), given: coordinated, want: want{do: wait, nominate: stand}},
		"a candidate, expired": {lease: holds(lease.Presence{ElectionMode: lease.Coordinated}), at: 15 * time.Second, given: coordinated, want: want{do: depose, trigger: TriggerExpiry, nominate: stand}},
		"a candidate, to depose has failed": {
			lease: holds(lease.Presence{ElectionMode: lease.Coordinated}), at: 15 * time.Second,
			given: and(coordinated, func(_ *Config, s *situation) { s.pace.tried, s.pace.retryAt = "7", noon.Add(16*time.Second) }),
			want:  want{do: wait, again: 16 * time.Second, nominate: stand},
		},
		"a candidate, elected":               {lease: inEpoch(free(fenced, lease.Coordinated), "me-1"), given: and(coordinated, rests(6)), want: waitFor(4 * time.Second)},
		"a candidate, elected after another": {lease: inEpoch(free(fenced, lease.Coordinated), "me-1"), given: and(coordinated, rests(5)), want: takes(TriggerElected)},
		"a candidate, elected, another preferred": {
			lease: preferring, given: and(coordinated, func(_ *Config, s *situation) { s.holder.mine, s.seen.Mode = true, lease.Coordinated }), want: want{do: clear},
		},
		"a candidate that rests":             {lease: holds(lease.Presence{ElectionMode: lease.Coordinated}), given: and(coordinated, rests(5)), want: want{do: wait, again: 4 * time.Second, nominate: stepBack}},
		"a candidate, held in another mode":  {lease: holds(fenced), given: coordinated, want: want{do: wait, again: 15 * time.Second, nominate: stepBack, remarks: otherMode}},
		"a candidate, free, of another mode": {lease: free(fenced, lease.Renewed), given: coordinated, want: want{do: wait, again: 4 * time.Second, nominate: stepBack, remarks: otherMode}},
		"a candidate, free, of another mode, for long": {
			lease: free(fenced, lease.Renewed), given: and(coordinated, winnableFor(4*time.Second, TriggerRelease)), want: want{do: wait, nominate: stand, remarks: otherMode},
		},

		"held for life":                                {lease: holds(lease.Presence{ElectionMode: lease.ForLife}), given: and(forLife, is(Alive)), want: waitFor(0)},
		"held for life, for years":                     {lease: holds(lease.Presence{ElectionMode: lease.ForLife}), at: 1e6 * time.Hour, given: and(forLife, is(Alive)), want: waitFor(0)},
		"held for life, silent, not for long":          {lease: holds(lease.Presence{ElectionMode: lease.ForLife}), given: and(forLife, is(Silent), bothFenced, suspect), want: waitFor(15 * time.Second)},
		"held for life, silent, for too long":          {lease: holds(lease.Presence{ElectionMode: lease.ForLife}), at: 15 * time.Second, given: and(forLife, is(Silent)), want: want{do: wait, remarks: []remark{holderUnaccounted}}},
		"held for life, silent, as was told":           {lease: holds(lease.Presence{ElectionMode: lease.ForLife}), at: 15 * time.Second, given: and(forLife, is(Silent), told(announcements{holder: "h"})), want: waitFor(0)},
		"held for life, heard again":                   {lease: holds(lease.Presence{ElectionMode: lease.ForLife}), at: 15 * time.Second, given: and(forLife, is(Alive), told(announcements{holder: "h"})), want: want{do: wait, remarks: []remark{holderHeard}}},
		"held for life, by another than told":          {lease: holds(lease.Presence{ElectionMode: lease.ForLife}), given: and(forLife, is(Silent), told(announcements{holder: "g"})), want: want{do: wait, again: 15 * time.Second, remarks: []remark{holderNotWaitedFor}}},
		"held for life, no Detector":                   {lease: holds(lease.Presence{ElectionMode: lease.ForLife}), at: time.Hour, given: and(forLife, is(Silent), func(c *Config, _ *situation) { c.Detector = nil }), want: waitFor(0)},
		"held for life, of which a Pod tells":          {lease: holds(lease.Presence{ElectionMode: lease.ForLife}), at: time.Hour, given: and(forLife, is(NoSign), func(c *Config, _ *situation) { c.Mode = ForLife{Owner: &metav1.OwnerReference{}} }), want: waitFor(0)},
		"held for life, its owner was deleted":         {lease: holds(lease.Presence{ElectionMode: lease.ForLife}), given: and(forLife, func(_ *Config, s *situation) { s.holder.orphaned = true }), want: takes(TriggerOwnerDeleted)},
		"free, and what it would hang on is not there": {lease: free(fenced, lease.ForLife), given: and(forLife, func(_ *Config, s *situation) { s.unready = true }), want: waitFor(0)},
		"an identity to clear needs nothing to hang on": {
			lease: holds(fenced), given: func(_ *Config, s *situation) { s.holder.mine, s.unready = true, true }, want: want{do: clear},
		},

		"not renewed for long, by its own words":       {lease: long, at: time.Minute, want: want{do: wait, again: time.Hour, remarks: []remark{holderUnaccounted}}},
		"not renewed for long, renewed again":          {lease: long, at: time.Second, given: told(announcements{holder: "h"}), want: want{do: wait, again: time.Minute, remarks: []remark{holderHeard}}},
		"the last epoch":                               {lease: last, want: want{do: wait, again: 15 * time.Second, remarks: []remark{lastEpoch}}},
		"the last epoch, as was told":                  {lease: last, given: told(announcements{exhausted: "u"}), want: waitFor(15 * time.Second)},
		"the last epoch, as was told of another Lease": {lease: last, given: told(announcements{exhausted: types.UID("v")}), want: want{do: wait, again: 15 * time.Second, remarks: []remark{lastEpoch}}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Replica, cfg.Detector = "me", someDetector{}
			s := situation{now: noon.Add(test.at), seen: shows(test.lease)}
			s.pace.retryPeriod = cfg.RetryPeriod
			if test.given != nil {
				test.given(&cfg, &s)
			}
			d := plan(cfg, s)
			if test.want.trigger != "" && !slices.Contains(Triggers, test.want.trigger) {
				t.Errorf("%q is no member of Triggers: add it (takeover.go)", test.want.trigger)
			}
			untried = slices.DeleteFunc(untried, func(trigger Trigger) bool { return trigger == test.want.trigger })
			got := want{do: d.action, trigger: test.want.trigger, nominate: d.nominate, remarks: d.remarks}
			if d.action == win || d.action == depose {
				got.trigger = d.trigger
			}
			if !d.again.IsZero() {
				got.again = d.again.Sub(noon)
			}
			if got.do != test.want.do || got.trigger != test.want.trigger || got.again != test.want.again || got.nominate != test.want.nominate || !slices.Equal(got.remarks, test.want.remarks) {
				t.Errorf("decides\n%+v, want\n%+v", got, test.want)
			}
			if d.action == win && d.takeover.Decided.IsZero() && s.winnable.since.IsZero() {
				t.Error("the takeover does not tell when it was decided")
			}
			s.memory = d.memory
			if again := plan(cfg, s); len(again.remarks) != 0 {
				t.Errorf("a second look says %q again", again.remarks)
			}
		})
	}
	if len(untried) > 0 {
		t.Errorf("no standby is tried that campaigns for %q", untried)
	}
}
