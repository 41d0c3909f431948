package detect

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"github.com/regent-project/regent/pkg/election"
)

// The probe has one request: a POST whose request and response bodies stay open. The leader's beat is an
// election.Statement, as a line of JSON. The standby sends a confirmation in the same form.
const (
	path            = "/v1/follow"
	replicaHeader   = "Regent-Replica"
	instanceHeader  = "Regent-Replica-Instance"
	intervalHeader  = "Regent-Beat-Interval"
	modeHeader      = "Regent-Election-Mode"
	priorityHeader  = "Regent-Election-Priority"
	ledHeader       = "Regent-Election-Led"
	urlHeader       = "Regent-Replica-Url"
	witnessHeader   = "Regent-Witness-Port" // of the answer
	bearer          = "Bearer "
	longestLine     = 4 << 10 // bytes
	longestReplica  = 256     // bytes
	longestHolder   = 512     // bytes
	longestURL      = 512     // bytes
	maxHeaderLength = 8 << 10 // bytes
)

// confirmation says that a standby could write the Lease with that holder on it. Leaders of older versions look at
// Reads alone. Standbys of older versions send Reads alone: they have not shown that they can write, and no leader
// makes way for them.
type confirmation struct {
	Reads  string `json:"reads,omitempty"`
	Writes string `json:"writes,omitempty"`
}

// by returns what the leader concludes from this line of a standby, and whether that is anything.
func (c confirmation) by(standby election.Standby) (_ election.Confirmation, any bool) {
	return election.Confirmation{Standby: standby, Holder: c.Writes}, c.Writes != ""
}

// lines calls take for each line of r, until a line is malformed or r ends.
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
