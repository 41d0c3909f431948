package server

import (
	"maps"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/regent-project/regent/pkg/election/fence"
)

// kindOfWrite is one way to change, or to seem to change, an object. before brings about, without a token, what do
// needs.
type kindOfWrite struct {
	name, verb string
	before, do func(target) error
	// idle writes leave etcd as it is. Their success would still tell a leader that all is well.
	idle bool
	// only says what can be written so; nil stands for all that has the verb.
	only func(writable) bool
}

var kindsOfWrites = []kindOfWrite{
	{name: "creation", verb: "create", before: nothing, do: create, only: isWhole},
	{name: "creation with a generated name", verb: "create", before: nothing, do: createGenerated, only: freelyNamed},
	{name: "dry-run of a creation", verb: "create", before: nothing, do: dry(create), only: isWhole, idle: true},

	{name: "update", verb: "update", before: create, do: update},
	{name: "update that changes nothing", verb: "update", before: create, do: updateNothing, idle: true},
	{name: "update that creates", verb: "update", before: nothing, do: put, only: putCreates},
	{name: "update that lets a deleted object go", verb: "update", before: leave, do: release, only: isWhole},
	{name: "update that lets a deleted namespace go", verb: "update", before: terminate, do: finalize, only: finalizes},
	{name: "dry-run of an update", verb: "update", before: create, do: dry(update), idle: true},
	{name: "dry-run of an update that creates", verb: "update", before: nothing, do: dry(put), only: putCreates, idle: true},

	{name: "JSON patch", verb: "patch", before: create, do: jsonPatch},
	{name: "merge patch", verb: "patch", before: create, do: patch(types.MergePatchType)},
	{name: "strategic merge patch", verb: "patch", before: create, do: patch(types.StrategicMergePatchType)},
	{name: "apply", verb: "patch", before: create, do: apply},
	{name: "apply that creates", verb: "patch", before: nothing, do: apply, only: isWhole},
	{name: "patch that changes nothing", verb: "patch", before: create, do: patchNothing, idle: true},
	{name: "apply that changes nothing", verb: "patch", before: createAndApply, do: apply, idle: true},
	{name: "patch that lets a deleted object go", verb: "patch", before: leave, do: patchRelease, only: isWhole},
	{name: "dry-run of a patch", verb: "patch", before: create, do: dry(patch(types.MergePatchType)), idle: true},
	{name: "dry-run of an apply that creates", verb: "patch", before: nothing, do: dry(apply), only: isWhole, idle: true},

	{name: "deletion", verb: "delete", before: create, do: remove},
	{name: "deletion with preconditions", verb: "delete", before: create, do: removeThisOne},
	{name: "deletion with a finalizer", verb: "delete", before: createHeld, do: remove},
	{name: "deletion that waits for dependents", verb: "delete", before: create, do: removeForeground},
	{name: "deletion of what is deleted already", verb: "delete", before: leave, do: remove, idle: true},
	{name: "deletion of what is missing", verb: "delete", before: nothing, do: removeMissing, idle: true},
	{name: "deletion of an empty namespace", verb: "delete", before: createEmptied, do: remove, only: isNamespace},
	{name: "dry-run of a deletion", verb: "delete", before: create, do: dry(remove), idle: true},

	{name: "deletion of a collection", verb: "deletecollection", before: create, do: removeAll},
	{name: "deletion of a collection with a finalizer", verb: "deletecollection", before: createHeld, do: removeAll},
	{name: "deletion of an empty collection", verb: "deletecollection", before: nothing, do: removeAll, idle: true},
	{name: "dry-run of the deletion of a collection", verb: "deletecollection", before: create, do: dry(removeAll), idle: true},
}

// What the server serves is asked of the server: nothing can be added to it and forgotten here.
func TestEveryWriteOfEveryResourceIsHeldToItsToken(t *testing.T) {
	s := startFencedShard(t)
	for _, r := range s.discover(t) {
		s.holdsToTokens(t, r, func(kindOfWrite) bool { return true })
	}
}

// holdsToTokens makes each kind of write of a resource that is one for it, with all kinds of tokens.
func (s *fencedShard) holdsToTokens(t *testing.T, r writable, has func(kindOfWrite) bool) {
	for _, verb := range r.verbs {
		if slices.Contains([]string{"get", "list", "watch"}, verb) {
			continue
		}
		kinds := slices.DeleteFunc(slices.Clone(kindsOfWrites), func(w kindOfWrite) bool {
			return w.verb != verb || w.only != nil && !w.only(r) || !has(w)
		})
		if len(kinds) == 0 {
			t.Errorf("no case for the verb %s of %s", verb, r)
		}
		for _, w := range kinds {
			t.Run(r.String()+"/"+w.name, func(t *testing.T) {
				w.isHeldToItsToken(t, s, r)
				w.needsNoToken(t, s, r)
			})
		}
	}
}

// isHeldToItsToken makes the write with each token that is of no current term, and then with one that is.
func (w kindOfWrite) isHeldToItsToken(t *testing.T, s *fencedShard, r writable) {
	t.Helper()
	o := s.newTarget(t, r)
	if err := w.before(o); err != nil {
		t.Fatalf("cannot prepare: %v", err)
	}
	for name, client := range s.over {
		was := s.keys(t)
		if err := w.do(o.by(client)); !fence.IsFenced(err) {
			t.Errorf("with the token of %s: got %v, want a refusal", name, err)
		}
		if now := s.keys(t); !maps.Equal(was, now) {
			t.Errorf("with the token of %s: etcd was written: it had %v, and has %v", name, was, now)
		}
	}
	w.succeeds(t, s, "with the token of the current term", o.by(s.current))
}

// needsNoToken makes the write as it was ever made.
func (w kindOfWrite) needsNoToken(t *testing.T, s *fencedShard, r writable) {
	t.Helper()
	o := s.newTarget(t, r)
	if err := w.before(o); err != nil {
		t.Fatalf("cannot prepare: %v", err)
	}
	w.succeeds(t, s, "without a token", o)
}

// succeeds also sees to it that the write is one: what never changes etcd proves nothing by not having changed it.
func (w kindOfWrite) succeeds(t *testing.T, s *fencedShard, how string, o target) {
	t.Helper()
	was := s.keys(t)
	if err := w.do(o); err != nil {
		t.Errorf("%s: %v", how, err)
	}
	if same := maps.Equal(was, s.keys(t)); same != w.idle {
		t.Errorf("%s: etcd is as it was: %t, want %t", how, same, w.idle)
	}
}

// The table of samples says of what a PUT creates; if it said too little, cases would be left out above.
func TestAPutCreatesOnlyWhereTheSamplesSayIt(t *testing.T) {
	s := startFencedShard(t)
	for _, r := range s.discover(t) {
		if !slices.Contains(r.verbs, "update") || putCreates(r) {
			continue
		}
		if err := put(s.newTarget(t, r)); !apierrors.IsNotFound(err) {
			t.Errorf("%s: a PUT of what does not exist: got %v, want that it is not found", r, err)
		}
	}
}
