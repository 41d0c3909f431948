package storage_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/regent-project/regent/pkg/election/etcdfence"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/test/etcdtest"
)

// refused reads how many writes were refused, by cause.
func refused(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, family := range families {
		if family.GetName() == "regent_fencing_refused_total" {
			for _, series := range family.GetMetric() {
				counts[series.GetLabel()[0].GetValue()] = series.GetCounter().GetValue()
			}
		}
	}
	return counts
}

func TestRefusalsAreCountedByTheirCause(t *testing.T) {
	w := newWorld(t, etcdtest.Start(t), true, nil)
	for fate, cause := range map[string]string{
		"nothing happens":                   "",
		"another takes it":                  "deposed",
		"the same takes it, in a new epoch": "deposed",
		"it is released":                    "released",
		"it is deleted":                     "deleted",
		"it is deleted and made again":      "deleted",
	} {
		w.reset(false)
		w.remove()
		ctx := w.as(w.take("me"))
		fates[fate].befall(w)
		before, checked := refused(t), counter(t, "regent_fencing_tokens_checked_total")
		err := w.create(ctx)
		if (err == nil) != (cause == "") {
			t.Errorf("%s: %v", fate, err)
		}
		for name, count := range refused(t) {
			want := before[name]
			if name == cause {
				want++
			}
			if count != want {
				t.Errorf("%s: %v more refusals as %s", fate, count-before[name], name)
			}
		}
		if counter(t, "regent_fencing_tokens_checked_total") <= checked {
			t.Errorf("%s: the check is not counted", fate)
		}
	}
	before := counter(t, "regent_fencing_tokens_checked_total")
	if err := w.client.CheckToken(w.as(w.take("me"))); err != nil || counter(t, "regent_fencing_tokens_checked_total") != before+1 {
		t.Errorf("a check that is no write is not counted: %v", err)
	}
}

// An alert on a rate misses the first refusal of a series that was not there before.
func TestRefusalsAreShownFromTheStart(t *testing.T) {
	newWorld(t, etcdtest.Start(t), true, nil) // which registers the metrics
	counts := refused(t)
	for _, cause := range []string{"deposed", "released", "deleted", "missing"} {
		if _, shown := counts[cause]; !shown {
			t.Errorf("no series for %s", cause)
		}
	}
}

func TestAWriteThatLacksItsTokenIsRefusedAndCounted(t *testing.T) {
	newWorld(t, etcdtest.Start(t), true, nil) // which registers the metrics
	before := refused(t)["missing"]
	err := etcdfence.RefuseMissing("somebody", "")
	var status apierrors.APIStatus
	if !fence.IsFenced(err) || !errors.As(err, &status) || status.Status().Details.Causes[0].Type != fence.MissingToken {
		t.Errorf("%v", err)
	}
	if !strings.Contains(err.Error(), "a write by somebody must carry the "+fence.Header) {
		t.Errorf("it does not say what to do: %v", err)
	}
	if refused(t)["missing"] != before+1 {
		t.Error("it is not counted")
	}
}

// A deletion that fails is the object's failure as long as the term goes on.
func TestAFailedDeletionOfALivingTermIsToldAsItIs(t *testing.T) {
	w := newWorld(t, etcdtest.Start(t), true, nil)
	ctx := w.as(w.take("me"))
	w.reset(false)
	for _, ctx := range []context.Context{ctx, w.admin} {
		if err := w.delete(ctx); err == nil || fence.IsFenced(err) {
			t.Errorf("delete what does not exist: %v", err)
		}
	}
}
