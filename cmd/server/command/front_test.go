package command

import (
	"strings"
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/server/connections"
	"github.com/regent-project/regent/pkg/server/front"
)

func TestFaultyFlagsOfAFrontAreToldInTheSameOrderEachTime(t *testing.T) {
	o := &frontOptions{
		shutdownDelay: -time.Second, shutdownTimeout: -time.Second, snapshotAge: -time.Second,
		limits: front.Limits{Connections: connections.Limits{Total: -1, PerClient: -1}, Requests: -1, RequestsPerClient: -1, WatchesPerClient: -1},
	}
	first := o.validate().Error()
	if got := strings.Count(first, "must not be negative"); got != 8 {
		t.Errorf("%d faults are told: %s", got, first)
	}
	for range 20 {
		if got := o.validate().Error(); got != first {
			t.Fatalf("%s\nand before\n%s", got, first)
		}
	}
}
