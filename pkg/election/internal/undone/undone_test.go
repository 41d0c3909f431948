package undone_test

import (
	"testing"

	"github.com/regent-project/regent/pkg/election/internal/undone"
)

func TestWhatIsForgottenIsForgottenOnceAndWhatCannotBeComparedIsKeptNot(t *testing.T) {
	var u undone.Undone
	calls := 0
	forget := func() { calls++ }
	u.Keep("a", forget)
	u.Keep(func() {}, forget) // some collectors of metrics are functions
	u.Forget("b")
	u.Forget(func() {})
	if calls != 0 {
		t.Errorf("%d calls for others", calls)
	}
	u.Forget("a")
	u.Forget("a")
	if calls != 1 {
		t.Errorf("%d calls, want 1", calls)
	}
}
