package leasecandidate

import (
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// now is any instant; all others in these tests are so long before or after it.
var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }
func in(d time.Duration) time.Time  { return now.Add(d) }

// one returns a candidate that was found long ago and answered just now.
func one(name, emulation, binary string, change ...func(*candidate)) candidate {
	c := candidate{found: ago(time.Minute), heard: ago(time.Second), LeaseCandidate: &coordinationv1beta1.LeaseCandidate{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: coordinationv1beta1.LeaseCandidateSpec{
			LeaseName: "work", EmulationVersion: emulation, BinaryVersion: binary, Strategy: coordinationv1.OldestEmulationVersion,
		},
	}}
	for _, f := range change {
		f(&c)
	}
	return c
}

func hear(before time.Duration) func(*candidate) {
	return func(c *candidate) { c.heard = ago(before) }
}

func unheard(c *candidate) { c.heard = time.Time{} }

func ping(before time.Duration) func(*candidate) {
	return func(c *candidate) { c.asked = ago(before) }
}

func leave(before time.Duration) func(*candidate) {
	return func(c *candidate) { c.left = ago(before) }
}

func wants(s coordinationv1.CoordinatedLeaseStrategy) func(*candidate) {
	return func(c *candidate) { c.Spec.Strategy = s }
}

func created(at time.Time) func(*candidate) {
	return func(c *candidate) { c.CreationTimestamp = metav1.NewTime(at) }
}

// held returns a lease of 15 s.
func heldBy(holder string, change ...func(*coordinationv1.LeaseSpec)) *coordinationv1.Lease {
	l := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](15), RenewTime: &metav1.MicroTime{Time: now}, Strategy: ptr.To(coordinationv1.OldestEmulationVersion),
	}}
	for _, f := range change {
		f(&l.Spec)
	}
	return l
}

func preferring(name string) func(*coordinationv1.LeaseSpec) {
	return func(s *coordinationv1.LeaseSpec) { s.PreferredHolder = &name }
}

func ofStrategy(strategy coordinationv1.CoordinatedLeaseStrategy) func(*coordinationv1.LeaseSpec) {
	return func(s *coordinationv1.LeaseSpec) { s.Strategy = &strategy }
}

func plain(s *coordinationv1.LeaseSpec) { s.Strategy = nil }

// forLife is how who holds a lease without renewing it leaves it.
func forLife(s *coordinationv1.LeaseSpec) {
	s.Strategy, s.RenewTime, s.LeaseDurationSeconds = nil, nil, nil
}

func names(candidates []candidate) []string {
	var names []string
	for _, c := range candidates {
		names = append(names, c.Name)
	}
	return names
}

func TestWhatIsDecided(t *testing.T) {
	const custom = coordinationv1.CoordinatedLeaseStrategy("example.com/custom")
	old, young := one("old", "1.30.0", "1.31.0"), one("young", "1.31.0", "1.31.0")
	for name, c := range map[string]struct {
		lease      *coordinationv1.Lease
		seen       time.Duration // before now
		candidates []candidate

		elect    string
		prefer   *string
		strategy coordinationv1.CoordinatedLeaseStrategy
		ask      []string
		expired  []string
		conflict bool
		due      time.Duration // after now; 0: in a quarter of an hour or later
	}{
		"nobody wants it": {},
		// Nobody holds it.
		"no lease: the best is elected":            {candidates: []candidate{young, old}, elect: "old"},
		"a free lease: the best is elected":        {lease: heldBy(""), candidates: []candidate{young, old}, elect: "old"},
		"an expired lease: the best is elected":    {lease: heldBy("gone"), seen: 15 * time.Second, candidates: []candidate{young, old}, elect: "old"},
		"a lease whose preferred holder has gone":  {lease: heldBy("", preferring("gone")), candidates: []candidate{young, old}, elect: "old"},
		"a lease of a plain elector that expired":  {lease: heldBy("gone", plain), seen: 15 * time.Second, candidates: []candidate{young, old}, elect: "old"},
		"a lease that is held for life":            {lease: heldBy("gone", forLife), seen: 24 * time.Hour, candidates: []candidate{young, old}},
		"the emulated version counts first":        {candidates: []candidate{one("a", "1.31.0", "1.31.0"), one("b", "1.30.0", "1.32.0")}, elect: "b"},
		"then the binary's":                        {candidates: []candidate{one("a", "1.30.0", "1.32.0"), one("b", "1.30.0", "1.31.0")}, elect: "b"},
		"then age":                                 {candidates: []candidate{one("a", "1.30.0", "1.31.0", created(now)), one("b", "1.30.0", "1.31.0", created(ago(time.Hour)))}, elect: "b"},
		"then the name":                            {candidates: []candidate{one("b", "1.30.0", "1.31.0"), one("a", "1.30.0", "1.31.0")}, elect: "a"},
		"versions are no text":                     {candidates: []candidate{one("a", "1.30.0", "1.31.0"), one("b", "1.9.0", "1.31.0")}, elect: "b"},
		"who has no version is none":               {candidates: []candidate{one("a", "", "1.31.0"), young}, elect: "young"},
		"all were found: all are asked":            {candidates: []candidate{one("a", "1.30.0", "1.31.0", unheard), one("b", "1.31.0", "1.31.0", unheard)}, ask: []string{"a", "b"}},
		"an old answer is none":                    {candidates: []candidate{one("a", "1.30.0", "1.31.0", hear(remembered))}, ask: []string{"a"}},
		"the best is waited for":                   {candidates: []candidate{one("a", "1.30.0", "1.31.0", unheard, ping(time.Second)), young}, due: patience - time.Second},
		"nobody waits for who is not better":       {candidates: []candidate{old, one("a", "1.31.0", "1.31.0", unheard)}, elect: "old"},
		"the best does not answer":                 {candidates: []candidate{one("a", "1.30.0", "1.31.0", unheard, ping(patience)), young}, elect: "young"},
		"nobody answers":                           {candidates: []candidate{one("a", "1.30.0", "1.31.0", unheard, ping(patience))}},
		"an answer from before the question":       {candidates: []candidate{one("a", "1.30.0", "1.31.0", hear(2*time.Second), ping(time.Second)), young}, due: patience - time.Second},
		"who left is asked, and hardly waited for": {lease: heldBy(""), candidates: []candidate{one("a", "1.30.0", "1.31.0", leave(time.Second), ping(time.Second/4)), young}, due: patienceWithLeavers - time.Second/4},
		"who left must answer anew":                {lease: heldBy(""), candidates: []candidate{one("a", "1.30.0", "1.31.0", leave(0)), young}, ask: []string{"a"}},
		"who left does not answer":                 {lease: heldBy(""), candidates: []candidate{one("a", "1.30.0", "1.31.0", leave(time.Second), ping(time.Second/2)), young}, elect: "young"},
		"who left had been asked before":           {lease: heldBy(""), candidates: []candidate{one("a", "1.30.0", "1.31.0", leave(time.Second/4), ping(time.Second)), young}, due: patienceWithLeavers - time.Second/4},
		"who left is alone":                        {lease: heldBy(""), candidates: []candidate{one("a", "1.30.0", "1.31.0", leave(0))}, ask: []string{"a"}},
		"who let it expire has left":               {lease: heldBy("a"), seen: 16 * time.Second, candidates: []candidate{one("a", "1.30.0", "1.31.0", hear(2*time.Second)), young}, ask: []string{"a"}},
		"who let it expire and was heard since":    {lease: heldBy("a"), seen: 17 * time.Second, candidates: []candidate{one("a", "1.30.0", "1.31.0"), young}, elect: "a"},
		// Somebody does.
		"the best holds it":                                 {lease: heldBy("old"), seen: time.Second, candidates: []candidate{young, old}, due: 14 * time.Second},
		"the best holds it, and is asked to go":             {lease: heldBy("old", preferring("young")), candidates: []candidate{young, old}, prefer: ptr.To(""), due: 15 * time.Second},
		"an equal holds it, but for its name":               {lease: heldBy("b"), candidates: []candidate{one("a", "1.30.0", "1.31.0"), one("b", "1.30.0", "1.31.0")}, due: 15 * time.Second},
		"an equal of another build holds it":                {lease: heldBy("b"), candidates: []candidate{one("a", "1.30.0+1", "1.31.0"), one("b", "1.30.0+2", "1.31.0")}, due: 15 * time.Second},
		"a younger equal holds it":                          {lease: heldBy("b"), candidates: []candidate{one("a", "1.30.0", "1.31.0", created(ago(time.Second))), one("b", "1.30.0", "1.31.0", created(now))}, prefer: ptr.To("a"), due: 15 * time.Second},
		"an equal is preferred":                             {lease: heldBy("b", preferring("a")), candidates: []candidate{one("a", "1.30.0", "1.31.0"), one("b", "1.30.0", "1.31.0")}, prefer: ptr.To(""), due: 15 * time.Second},
		"another holds it":                                  {lease: heldBy("young"), candidates: []candidate{young, old}, prefer: ptr.To("old"), due: 15 * time.Second},
		"another holds it, and is told":                     {lease: heldBy("young", preferring("old")), candidates: []candidate{young, old}, due: 15 * time.Second},
		"another holds it: the best is asked first":         {lease: heldBy("young"), candidates: []candidate{young, one("a", "1.30.0", "1.31.0", unheard)}, ask: []string{"a"}, due: 15 * time.Second},
		"another holds it: the best does not answer":        {lease: heldBy("young"), candidates: []candidate{young, one("a", "1.30.0", "1.31.0", unheard, ping(patience))}, due: 15 * time.Second},
		"the preferred one may answer yet":                  {lease: heldBy("young", preferring("a")), candidates: []candidate{young, one("a", "1.30.0", "1.31.0", unheard, ping(time.Second))}, due: patience - time.Second},
		"the preferred one does not answer":                 {lease: heldBy("young", preferring("a")), candidates: []candidate{young, one("a", "1.30.0", "1.31.0", unheard, ping(patience))}, prefer: ptr.To(""), due: 15 * time.Second},
		"the preferred one was deleted":                     {lease: heldBy("young", preferring("a")), candidates: []candidate{young}, prefer: ptr.To(""), due: 15 * time.Second},
		"the preferred one was deleted, another may answer": {lease: heldBy("young", preferring("a")), candidates: []candidate{young, one("b", "1.30.0", "1.31.0", unheard, ping(time.Second))}, prefer: ptr.To(""), due: patience - time.Second},
		"an even better one came":                           {lease: heldBy("young", preferring("old")), candidates: []candidate{young, old, one("a", "1.29.0", "1.31.0")}, prefer: ptr.To("a"), due: 15 * time.Second},
		"the holder is no candidate":                        {lease: heldBy("somebody"), candidates: []candidate{young, old}, prefer: ptr.To("old"), due: 15 * time.Second},
		"a plain elector holds it":                          {lease: heldBy("somebody", plain), seen: time.Second, candidates: []candidate{young, old}, due: 14 * time.Second},
		"a lease without a duration":                        {lease: heldBy("old", func(s *coordinationv1.LeaseSpec) { s.LeaseDurationSeconds = nil }), candidates: []candidate{old}, due: firstDuration},
		"a lease without a duration, expired":               {lease: heldBy("gone", func(s *coordinationv1.LeaseSpec) { s.LeaseDurationSeconds = nil }), seen: firstDuration, candidates: []candidate{old}, elect: "old"},
		// Strategies.
		"of a strategy of others only that is said":            {candidates: []candidate{one("a", "", "1.31.0", wants(custom))}, strategy: custom},
		"of a strategy of others, said":                        {lease: heldBy("", ofStrategy(custom)), candidates: []candidate{one("a", "", "1.31.0", wants(custom))}},
		"of a strategy of others, held":                        {lease: heldBy("b", ofStrategy(custom)), candidates: []candidate{one("a", "", "1.31.0", wants(custom)), one("b", "", "1.31.0", wants(custom))}, due: 15 * time.Second},
		"the strategy of the newest counts":                    {candidates: []candidate{one("a", "1.30.0", "1.31.0"), one("b", "1.30.0", "1.32.0", wants(custom))}, strategy: custom},
		"the strategy of the newest counts, whatever was said": {lease: heldBy("b", ofStrategy(custom)), candidates: []candidate{one("a", "1.30.0", "1.31.0", wants(custom)), one("b", "1.30.0", "1.32.0")}, prefer: ptr.To("a"), due: 15 * time.Second},
		"the newest do not agree":                              {candidates: []candidate{one("a", "1.30.0", "1.32.0"), one("b", "1.30.0", "1.32.0", wants(custom))}, conflict: true},
		"older ones need not agree":                            {candidates: []candidate{one("a", "1.30.0", "1.31.0", wants(custom)), one("b", "1.30.0", "1.31.0"), one("c", "1.30.0", "1.32.0")}, elect: "a"},
		// Those who are never heard.
		"whoever is silent for long is asked":     {lease: heldBy("old"), candidates: []candidate{old, one("a", "1.31.0", "1.31.0", hear(longestSilence))}, ask: []string{"a"}, due: 15 * time.Second},
		"whoever was found long ago is asked":     {lease: heldBy("old"), candidates: []candidate{old, one("a", "1.31.0", "1.31.0", unheard, func(c *candidate) { c.found = ago(longestSilence) })}, ask: []string{"a"}, due: 15 * time.Second},
		"nobody is asked twice":                   {lease: heldBy("old"), candidates: []candidate{old, one("a", "1.31.0", "1.31.0", hear(longestSilence+time.Minute), ping(time.Minute))}, due: 15 * time.Second},
		"whoever is silent for longer is deleted": {lease: heldBy("old"), candidates: []candidate{old, one("a", "1.30.0", "1.30.0", hear(lifetime), ping(longestSilence))}, expired: []string{"a"}, due: 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			d := decide(election{lease: c.lease, seen: ago(c.seen), candidates: c.candidates}, now)
			if d.elect != c.elect {
				t.Errorf("elects %q, want %q", d.elect, c.elect)
			}
			if !ptr.Equal(d.prefer, c.prefer) {
				t.Errorf("prefers %v, want %v", show(d.prefer), show(c.prefer))
			}
			if d.strategy != c.strategy {
				t.Errorf("writes strategy %q, want %q", d.strategy, c.strategy)
			}
			if got := names(d.ask); !slices.Equal(got, c.ask) {
				t.Errorf("asks %q, want %q", got, c.ask)
			}
			if got := names(d.expired); !slices.Equal(got, c.expired) {
				t.Errorf("deletes %q, want %q", got, c.expired)
			}
			if (d.conflict != nil) != c.conflict {
				t.Errorf("conflict %v, want one: %t", d.conflict, c.conflict)
			}
			switch due := d.due.Sub(now); {
			case c.due != 0 && due != c.due:
				t.Errorf("due after %v, want %v", due, c.due)
			case c.due == 0 && !d.due.IsZero() && due < longestSilence-time.Minute:
				t.Errorf("due after %v, for nothing", due)
			}
		})
	}
}

func show(s *string) string {
	if s == nil {
		return "what is there"
	}
	return fmt.Sprintf("%q", *s)
}
