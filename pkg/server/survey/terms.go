package survey

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/regent-project/regent/pkg/server/status"
)

// ErrUnknown is wrapped by the error of a question about a shard of which this one has not heard.
var ErrUnknown = errors.New("no such shard")

// outcome is an answer, or why there is none.
type outcome[T any] struct {
	value T
	err   error
}

// Terms returns the terms of a shard that are remembered. Empty is this shard; any other one is asked.
func (s *Survey) Terms(ctx context.Context, shard string) (status.Terms, error) {
	if shard != "" && shard != s.cfg.Name {
		return s.askTerms(ctx, shard)
	}
	got := s.terms.get(ctx, s.patience.whole, "", func(ctx context.Context) outcome[status.Terms] {
		terms, err := s.cfg.Terms(ctx)
		return outcome[status.Terms]{terms, err}
	})
	return got.value, got.err
}

// latest is how many terms go along with a Shard.
const latest = 10

// latestTerms returns the latest terms of this shard, and none if they cannot be read: what goes on at present is told
// anyway.
func (s *Survey) latestTerms(ctx context.Context) []status.Term {
	terms, err := s.Terms(ctx, "")
	if err != nil {
		return nil
	}
	return terms.Terms[:min(latest, len(terms.Terms))]
}

// explain returns the latest terms with what the leader says of its own, which it records only when its takeover is
// over. Of several ranges that is the leader of range 0.
func explain(terms []status.Term, of status.Shard) []status.Term {
	n, latest := slices.IndexFunc(of.Replicas, func(r status.Replica) bool { return of.LedBy(r) }), slices.IndexFunc(terms, func(t status.Term) bool { return t.Range == 0 })
	if n < 0 || latest < 0 || len(terms[latest].Phases) > 0 || terms[latest].Epoch != of.Replicas[n].Election.Epoch {
		return terms
	}
	leading := of.Replicas[n].Election
	terms = slices.Clone(terms) // others have the same
	told := &terms[latest]
	told.Trigger = cmp.Or(told.Trigger, leading.Trigger)
	if leading.Term != nil {
		told.Phases, told.Gap = leading.Term.Phases, leading.Term.Gap
	}
	return terms
}

func (s *Survey) askTerms(ctx context.Context, shard string) (terms status.Terms, err error) {
	if !slices.Contains(s.cfg.Others(), shard) {
		return terms, fmt.Errorf("%w: shard %s has not heard of a shard %q", ErrUnknown, s.cfg.Name, shard)
	}
	ctx, cancel := context.WithTimeout(ctx, s.patience.whole)
	defer cancel()
	body, err := s.cfg.Ask(ctx, shard, status.TermsPath, s.patience.other, maxAnswer)
	if err == nil {
		err = json.Unmarshal(body, &terms)
	}
	if err == nil && terms.Shard != shard {
		err = fmt.Errorf("it answers as shard %q", terms.Shard)
	}
	if err != nil {
		return status.Terms{}, fmt.Errorf("shard %s does not tell its terms: %s", shard, oneLine(err))
	}
	return terms, nil
}
