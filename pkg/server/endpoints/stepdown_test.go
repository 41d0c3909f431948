package endpoints

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/ranges"
)

// numbered has so many ranges.
type numbered int

func (n numbered) Status() ranges.Status { return ranges.Status{Number: int(n)} }

func (n numbered) Range(int) (r ranges.RangeStatus, ok bool) { return r, false }

func (n numbered) StepDown(int, string, string) (election.Term, error) {
	return election.Term{}, election.ErrNotLeading
}

// With one leader nobody need say which range is meant. With several everybody must: a step down ends somebody's term.
func TestAStepDownSaysWhichRangeIsMeant(t *testing.T) {
	for _, c := range []struct {
		ranges int
		asked  string
		want   int // -1: refused
	}{
		{1, "", 0}, {1, "?range=0", 0}, {1, "?range=1", -1}, {0, "", 0},
		{8, "", -1}, {8, "?range=0", 0}, {8, "?range=7", 7}, {8, "?range=8", -1}, {8, "?range=-1", -1}, {8, "?range=x", -1},
	} {
		s := &stepDown{shard: "eu1", leadership: numbered(c.ranges)}
		got, err := s.rangeOf(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/election/step-down"+c.asked, http.NoBody))
		if err != nil {
			if got = -1; !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "--range") {
				t.Errorf("%d ranges, %q: %v", c.ranges, c.asked, err)
			}
		}
		if got != c.want {
			t.Errorf("%d ranges, %q: range %d, want %d (%v)", c.ranges, c.asked, got, c.want, err)
		}
	}
}
