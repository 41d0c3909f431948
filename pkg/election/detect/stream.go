package detect

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"github.com/regent-project/regent/pkg/election"
)

// The one request: a POST whose bodies both stay open. The leader sends an election.Statement as a line of JSON, as its
// beat; the standby sends a confirmation.
const (
	path            = "/v1/follow"
	replicaHeader   = "Regent-Replica"
	intervalHeader  = "Regent-Beat-Interval"
	modeHeader      = "Regent-Election-Mode"
	priorityHeader  = "Regent-Election-Priority"
	ledHeader       = "Regent-Election-Led"
	bearer          = "Bearer "
	longestLine     = 4 << 10 // bytes
	longestReplica  = 256     // bytes
	longestHolder   = 512     // bytes
	maxHeaderLength = 8 << 10 // bytes
)

// confirmation says that a standby could write the Lease, which has that holder. Reads is for leaders of older versions, which ask
// for no more. From a standby of an older version it is all there is: it has not shown that it can write, and nobody makes way
// for it.
type confirmation struct {
	Reads  string `json:"reads,omitempty"`
	Writes string `json:"writes,omitempty"`
}

// by is what a leader makes of the line that a standby has sent, if anything.
func (c confirmation) by(standby election.Standby) (_ election.Confirmation, any bool) {
	return election.Confirmation{Standby: standby, Holder: c.Writes}, c.Writes != ""
}

// lines calls take with each line of r until one is malformed or r ends.
func lines[T any](r io.Reader, take func(T)) error {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(make([]byte, 0, 256), longestLine)
	for scanner.Scan() {
		var message T
		if err := json.Unmarshal(scanner.Bytes(), &message); err != nil {
			return fmt.Errorf("a message of the probe: %w", err)
		}
		take(message)
	}
	if err := scanner.Err(); err != nil {
		return fmt.Errorf("the probe's stream: %w", err)
	}
	return io.EOF
}

func lineOf(message any) []byte {
	text, err := json.Marshal(message)
	if err != nil {
		panic(err) // structs of strings
	}
	return append(text, '\n')
}
