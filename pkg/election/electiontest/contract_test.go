package electiontest_test

import (
	"testing"

	"github.com/regent-project/regent/pkg/election/electiontest"
)

func TestTheStoreDoesWhatServersDo(t *testing.T) {
	electiontest.CheckLeases(t, electiontest.NewStore("example").Client(), "example")
}
