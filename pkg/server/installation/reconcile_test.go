package installation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// After a shard was restored, of two that have a cluster the former one gives it up, and one that was lost is taken
// back. What nobody can know is left to an administrator.
func TestWhatHasMovedSinceABackupIsSettled(t *testing.T) {
	t.Parallel()
	stale := claim{shard: "eu1", uid: "u", epoch: 1}
	moved := claim{shard: "us1", uid: "u", epoch: 2, origins: []string{"eu1"}, path: "root:a"}
	gone := claim{shard: "us1", uid: "u", epoch: 1, movedTo: "eu1", path: "root:a"}
	comes := claim{shard: "eu1", uid: "u", epoch: 2, origins: []string{"us1"}, comes: true}
	complete := comes
	complete.isComplete = true
	another, same, unrelated := moved, moved, moved
	another.uid, same.epoch, unrelated.origins = "v", 1, nil
	third := claim{shard: "root", uid: "u", epoch: 3, origins: []string{"eu1", "us1"}}
	settled := func(at, from string, isBack bool) *Reconciliation {
		return &Reconciliation{Path: "root:a", Cluster: "c", Shard: at, From: from, TakenBack: isBack}
	}
	unsettled := func(at, from string) *Reconciliation {
		r := settled(at, from, false)
		r.Why = "why"
		return r
	}
	lost := settled("us1", "eu1", true)
	lost.Why = "why"
	for name, tc := range map[string]struct {
		all  []claim
		want *Reconciliation
	}{
		"it has moved away since":                           {[]claim{stale, moved}, settled("us1", "eu1", false)},
		"it has moved here since":                           {[]claim{gone}, settled("us1", "eu1", true)},
		"it has moved here since, and objects were removed": {[]claim{{shard: "us1", uid: "u", epoch: 1, movedTo: "eu1", isVacated: true}}, lost},
		"it has moved here since, and had begun to come":    {[]claim{comes, gone}, settled("us1", "eu1", true)},
		"it is about to arrive":                             {[]claim{complete, gone}, nil},
		"it has moved here before":                          {[]claim{{shard: "eu1", uid: "u", epoch: 2, origins: []string{"us1"}}, gone}, nil},
		"it has come back here since":                       {[]claim{{shard: "eu1", uid: "u", epoch: 0}, gone}, unsettled("eu1", "us1")},
		"it was always here":                                {[]claim{stale}, nil},
		"it has moved to a third one":                       {[]claim{{shard: "us1", uid: "u", epoch: 2, movedTo: "root"}, {shard: "root", uid: "u", epoch: 3, origins: []string{"eu1", "us1"}}}, nil},
		"it moves between others, and has been here":        {[]claim{{shard: "us1", uid: "u", epoch: 2, origins: []string{"eu1"}, movedTo: "root"}}, nil},
		"another one has its name":                          {[]claim{stale, another}, unsettled("us1", "eu1")},
		"both have it of one epoch":                         {[]claim{stale, same}, unsettled("eu1", "us1")},
		"the other has it from nobody":                      {[]claim{stale, unrelated}, unsettled("us1", "eu1")},
		"three have it":                                     {[]claim{stale, moved, third}, unsettled("root", "us1")},
		"both say that it has moved":                        {[]claim{{shard: "eu1", uid: "u", epoch: 0, movedTo: "us1"}, {shard: "us1", uid: "u", epoch: 1, movedTo: "eu1", path: "root:a"}}, settled("us1", "eu1", true)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, ok := reconcile("c", tc.all, "eu1")
			if ok != (tc.want != nil) {
				t.Fatalf("something is said: %v, %v", ok, r)
			}
			if !ok {
				return
			}
			if (r.Why == "") != (tc.want.Why == "") {
				t.Errorf("it says why nothing is done: %q, and should be %+v", r.Why, tc.want)
			}
			if diff := cmp.Diff(*tc.want, r, cmpopts.IgnoreUnexported(Reconciliation{}), cmpopts.IgnoreFields(Reconciliation{}, "Why", "Path")); diff != "" {
				t.Error(diff)
			}
		})
	}
}
