package survey

import (
	"cmp"
	"context"
	"encoding/json"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/server/status"
)

// sayFarewell tells the other replicas of this shard that this one ends in order, so that nobody looks for it. Those
// that do not hear of it list it as one that does not answer.
func (s *Survey) sayFarewell(ctx context.Context) {
	own := s.cfg.Outline()
	body, err := json.Marshal(status.Farewell{Replica: own.Name, Instance: own.Instance})
	if err != nil {
		return // it is a struct of strings
	}
	ctx, cancel := context.WithTimeout(ctx, s.patience.leave)
	defer cancel()
	others := s.roster.list()
	var telling sync.WaitGroup
	defer telling.Wait()
	for _, t := range others[:min(len(others), mostAtOnce)] {
		telling.Go(func() {
			if err := s.lines.tell(ctx, t.url, status.FarewellPath, body); err != nil {
				klog.FromContext(ctx).V(2).Info("Another replica does not hear that this one leaves", "replica", t.name, "err", err)
			}
		})
	}
}

// NoteDeparture records that a process of this shard has ended in order: it is not told of any more. Without an
// instance it was one of an older version, or a person says so of all that is known by that name.
func (s *Survey) NoteDeparture(said status.Farewell) {
	s.roster.leave(time.Now(), true, cmp.Or(said.Instance, said.Replica))
}
