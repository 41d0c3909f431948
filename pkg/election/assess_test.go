package election

import (
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// The last renewal was sent at noon. A lease lasts 15 s, a drain may take 5 s, a request 3.3 s, and renewals are due
// every 2 s.
func TestWhatEndsATerm(t *testing.T) {
	const (
		deadline = 10 * time.Second // what is left is for the drain
		troubled = 4 * time.Second
		request  = 10 * time.Second / 3
	)
	wishes := func(w lease.Wish) *coordinationv1.Lease {
		l := holds(lease.Presence{})
		w.WriteTo(l)
		return l
	}
	edited := func(edit func(*coordinationv1.Lease)) *coordinationv1.Lease {
		l := holds(lease.Presence{})
		edit(l)
		return l
	}
	preferring := edited(func(l *coordinationv1.Lease) {
		l.Spec.Strategy, l.Spec.PreferredHolder = ptr.To(coordinationv1.OldestEmulationVersion), ptr.To("other")
	})
	alone := func(c *Config, _ *tenure) { c.Detector = nil }
	forLife := func(c *Config, t *tenure) { c.Mode, t.renewals = ForLife{}, renewals{} }
	unelected := func(c *Config, t *tenure) { c.unelected, t.grounds = true, grounds{} }
	fails := func(at time.Duration) func(*Config, *tenure) {
		return func(_ *Config, t *tenure) { t.renewals.failed = noon.Add(at) }
	}
	hears := func(failed, heard time.Duration) func(*Config, *tenure) {
		return func(_ *Config, t *tenure) {
			t.renewals.failed, t.trouble = noon.Add(failed), trouble{asked: true, heir: "b", since: noon.Add(heard)}
		}
	}
	wish := lease.Wish{Holder: "h", Replica: "b", Mode: lease.Renewed, Priority: 8}
	of := func(change func(*lease.Wish)) *coordinationv1.Lease {
		w := wish
		change(&w)
		return wishes(w)
	}
	asked, answered := trouble{asked: true}, func(at time.Duration) trouble { return trouble{asked: true, heir: "b", since: noon.Add(at)} }

	for name, test := range map[string]struct {
		lease   *coordinationv1.Lease // nil: held by this term
		at      time.Duration         // since the last renewal was sent
		given   func(*Config, *tenure)
		cause   Cause // empty: the term goes on
		again   time.Duration
		say     Condition
		trouble trouble
	}{
		"held":                           {again: deadline},
		"held, alone":                    {given: alone, again: deadline},
		"renewed too long ago":           {at: deadline, cause: RenewDeadline},
		"renewed too long ago, alone":    {at: deadline, given: alone, cause: RenewDeadline},
		"renewed not quite too long ago": {at: deadline - 1, again: deadline},
		"the claim is lost":              {given: func(_ *Config, t *tenure) { t.lost = because(Fenced, "refused") }, cause: Fenced},
		"deleted":                        {given: func(_ *Config, t *tenure) { t.seen = lease.Observation{Revision: "8"} }, cause: Deposed},
		"another uid":                    {lease: edited(func(l *coordinationv1.Lease) { l.UID = "v" }), cause: Deposed},
		"another holder":                 {lease: edited(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("g") }), cause: Deposed},
		"no holder":                      {lease: free(lease.Presence{}, lease.Renewed), cause: Deposed},
		"another epoch":                  {lease: edited(func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = ptr.To[int32](6) }), cause: Deposed},
		"an earlier epoch":               {lease: edited(func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = ptr.To[int32](4) }), cause: Deposed},
		"another preferred, elected":     {lease: preferring, given: func(_ *Config, t *tenure) { t.named = true }, cause: StepDown},
		"another preferred, by nobody's business": {lease: preferring, again: deadline},
		"for life":                        {at: 1e6 * time.Hour, given: forLife},
		"for life, another holder":        {lease: edited(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("g") }), given: forLife, cause: Deposed},
		"for life, another epoch":         {lease: edited(func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = ptr.To[int32](6) }), given: forLife, cause: Deposed},
		"without election, held":          {given: unelected, cause: Deposed},
		"without election, expired":       {at: 15 * time.Second, given: unelected},
		"without election, held for life": {lease: holds(lease.Presence{ElectionMode: lease.ForLife}), at: time.Hour, given: unelected, cause: Deposed},
		"without election, free":          {lease: free(lease.Presence{}, lease.Renewed), given: unelected},
		"without election, deleted":       {given: func(c *Config, t *tenure) { unelected(c, t); t.seen = lease.Observation{Revision: "8"} }},

		"a wish of who follows":        {lease: wishes(wish), cause: StepDown},
		"a wish, alone":                {lease: wishes(wish), given: alone, again: deadline},
		"a wish of who follows nobody": {lease: of(func(w *lease.Wish) { w.Replica = "c" }), again: deadline},
		"a wish of nobody":             {lease: of(func(w *lease.Wish) { w.Replica = "" }), again: deadline},
		"a wish of this replica":       {lease: of(func(w *lease.Wish) { w.Replica = "me" }), again: deadline},
		"a wish of another process of its name": {lease: of(func(w *lease.Wish) { w.Replica, w.Instance = "me", "me_2" }), given: func(_ *Config, t *tenure) {
			t.standbys = append(t.standbys, Standby{Replica: "me", Instance: "me_2"})
		}, cause: StepDown},
		"a wish of a third process of a name": {lease: of(func(w *lease.Wish) { w.Replica, w.Instance = "me", "me_3" }), given: func(_ *Config, t *tenure) {
			t.standbys = append(t.standbys, Standby{Replica: "me", Instance: "me_2"})
		}, again: deadline},
		"a wish of who follows by a detector that tells no instances": {lease: of(func(w *lease.Wish) { w.Instance = "b_2" }), cause: StepDown},
		"a wish about another holder":                                 {lease: of(func(w *lease.Wish) { w.Holder = "g" }), again: deadline},
		"a wish of no higher priority":                                {lease: of(func(w *lease.Wish) { w.Priority = 7 }), again: deadline},
		"a wish of another mode":                                      {lease: of(func(w *lease.Wish) { w.Mode = lease.ForLife }), again: deadline},
		"a wish to succeed who holds for life":                        {lease: of(func(w *lease.Wish) { w.Mode = lease.ForLife }), given: forLife, cause: StepDown},

		"a renewal is late":                         {at: 9 * time.Second, again: deadline},
		"a renewal has failed":                      {at: 3 * time.Second, given: fails(2 * time.Second), again: troubled},
		"it is in trouble":                          {at: troubled, given: fails(2 * time.Second), say: Troubled, trouble: asked, again: deadline},
		"it is in trouble, alone":                   {at: troubled, given: func(c *Config, t *tenure) { alone(c, t); fails(2*time.Second)(c, t) }, again: deadline},
		"it has asked":                              {at: troubled, given: func(_ *Config, t *tenure) { t.renewals.failed, t.trouble = noon.Add(2*time.Second), asked }, trouble: asked, again: deadline},
		"another could write, the next try fails":   {at: 6 * time.Second, given: hears(5*time.Second+1, 5*time.Second), cause: RenewDeadline},
		"another could write, and is waited for":    {at: 6 * time.Second, given: hears(3*time.Second, 5*time.Second), trouble: answered(5 * time.Second), again: 5*time.Second + request},
		"another could write for too long":          {at: 5*time.Second + request, given: hears(3*time.Second, 5*time.Second), cause: RenewDeadline},
		"another could write, which comes too late": {at: 8 * time.Second, given: hears(3*time.Second, 8*time.Second), trouble: answered(8 * time.Second), again: deadline},
		"another could write, and it has renewed":   {at: time.Second, given: func(_ *Config, t *tenure) { t.trouble = answered(-time.Second) }, say: Well, again: deadline},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Replica, cfg.Detector, cfg.Priority = "me", someDetector{}, 7
			if test.lease == nil {
				test.lease = holds(lease.Presence{})
			}
			now := tenure{
				now: noon.Add(test.at), seen: shows(test.lease),
				grounds:  grounds{pin: lease.Pin{UID: "u", Holder: "h", Epoch: 5}, renewals: renewals{sent: noon}},
				standbys: []Standby{{Replica: "a"}, {Replica: "b"}},
			}
			if test.given != nil {
				test.given(&cfg, &now)
			}
			a := assess(cfg, now)
			if (a.cause == nil) != (test.cause == "") || a.cause != nil && !errors.Is(a.cause, test.cause) {
				t.Errorf("ends because of %v, want %q", a.cause, test.cause)
			}
			var again time.Time
			if test.again != 0 {
				again = noon.Add(test.again)
			}
			if !a.again.Equal(again) || a.say != test.say || a.trouble != test.trouble {
				t.Errorf("looks again after %v, says %q, trouble %+v; want %v, %q, %+v", a.again.Sub(noon), a.say, a.trouble, test.again, test.say, test.trouble)
			}
		})
	}
}
