package detect

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
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

// confirmation says that a standby reads the Lease, with that holder on it.
type confirmation struct {
	Reads string `json:"reads,omitempty"`
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
