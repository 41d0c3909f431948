package history

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Outcome is what the writer of a register was told.
type Outcome string

// The outcomes. A write without one was under way when its process died.
const (
	Made    Outcome = "made"
	Fenced  Outcome = "fenced"
	Unknown Outcome = "unknown"
)

// Write is a write of a register by a term. Values are never written twice. Times are of one machine's wall clock, as
// they come from several processes: a clock that is set back spoils a history.
type Write struct {
	Register, Term, Value string
	Call, Return          time.Time
	Outcome               Outcome
}

// Read is a consistent read of a register. Value is empty if there was none.
type Read struct {
	Register, Value string
	Call, Return    time.Time
}

// registerLasts is how long one register is written, before the next: a history of many short registers is judged
// sooner than that of one.
const registerLasts = 5 * time.Second

// RegisterAt is the register to be written at a time, by the leaders under a Lease.
func RegisterAt(t time.Time, lease string) string {
	return fmt.Sprintf("register-%d", t.UnixNano()/int64(registerLasts)) + RangeOf(lease)
}

// AppendTo appends the write to a record, in one piece: once when it begins, and once when it is answered.
func (w Write) AppendTo(record *os.File) error {
	line, err := json.Marshal(w)
	if err != nil {
		return err
	}
	_, err = record.Write(append(line, '\n'))
	return err
}

// ReadRecord returns the writes of a record, each as last appended. The last line may be cut short: its writer died.
func ReadRecord(name string) ([]Write, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	byValue := map[string]Write{}
	for line := range strings.Lines(string(text)) {
		var w Write
		if err := json.Unmarshal([]byte(line), &w); err != nil {
			if strings.HasSuffix(line, "\n") {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			continue
		}
		byValue[w.Value] = w
	}
	writes := make([]Write, 0, len(byValue))
	for _, w := range byValue {
		writes = append(writes, w)
	}
	return writes, nil
}

// change is one of the Lease's: who holds it from then on, empty for nobody. They are numbered, as their order is
// known.
type change struct {
	number int
	term   string
}

// register is the state of the model.
type register struct {
	changes int // how many changes of the Lease there were
	term    string
	value   string
}

// step says what a fenced register does: a write is made if and only if its term is the current one.
func step(state, input, output any) (bool, any) {
	s := state.(register)
	switch op := input.(type) {
	case change:
		if op.number != s.changes+1 {
			return false, s
		}
		s.changes, s.term = op.number, op.term
		return true, s
	case Write:
		if output.(Outcome) == Fenced {
			return op.Term != s.term, s
		}
		s.value = op.Value
		return op.Term == s.term, s
	case Read:
		return s.value == op.Value, s
	default:
		panic(fmt.Sprintf("no operation: %T", input))
	}
}

// Check returns an error unless a fenced register explains what clients were told, in the light of what etcd's history
// says was committed: each register by itself, together with the changes meanwhile of the Lease, or of that of the
// range whose leaders write it.
func Check(events []Event, lease string, writes []Write, reads []Read) (checked int, err error) {
	changes := map[string][]porcupine.Operation{} // by Lease
	for name, ops := range operations(events, writes, reads) {
		of := LeaseOfTerm(lease, name)
		if changes[of] == nil {
			changes[of] = changesOf(events, of)
		}
		begins, ends := int64(1<<62), int64(0)
		for _, op := range ops {
			begins, ends = min(begins, op.Call), max(ends, op.Return)
		}
		initial := register{}
		for _, c := range changes[of] {
			switch {
			case c.Return < begins: // before the register was
				initial.changes, initial.term = c.Input.(change).number, c.Input.(change).term
			case c.Call <= ends:
				ops = append(ops, c)
			}
		}
		model := porcupine.Model{Init: func() any { return initial }, Step: step}
		switch porcupine.CheckOperationsTimeout(model, ops, time.Minute) {
		case porcupine.Illegal:
			return checked, fmt.Errorf("no fenced register explains the %d operations on %s", len(ops), name)
		case porcupine.Unknown:
			return checked, fmt.Errorf("the %d operations on %s could not be judged within a minute: make fewer of them", len(ops), name)
		}
		checked += len(ops)
	}
	return checked, nil
}

// changesOf are the changes of the Lease's holder. Each was made between when it, or a change before it, was sent, and
// when it was seen.
func changesOf(events []Event, lease string) []porcupine.Operation {
	var changes []porcupine.Operation
	current, n, before := "", 0, int64(0)
	for _, e := range events {
		if !e.lease || !strings.HasSuffix(e.Key, "/"+lease) {
			continue
		}
		shown := ""
		if token := e.shows(); !token.IsZero() {
			shown = TermOf(token)
		}
		// Not committed before it was sent, nor before what was sent earlier.
		before = sentBefore(e, before)
		if shown != current {
			n++
			current = shown
			changes = append(changes, porcupine.Operation{ClientId: leaseClient, Input: change{n, shown}, Call: before, Return: e.At.UnixNano()})
		}
	}
	return changes
}

// sentBefore is a time at which the Lease's event had not been committed yet.
func sentBefore(e Event, before int64) int64 {
	if sent := e.Sent.UnixNano(); !e.Sent.IsZero() && sent > before && sent <= e.At.UnixNano() {
		return sent
	}
	return before
}

// The clients of the model: those that write and read have numbers of their own.
const leaseClient = 0

// operations returns what was done to each register. Of writes that were not answered, those count that etcd's history
// has; what it does not have was never made.
func operations(events []Event, writes []Write, reads []Read) map[string][]porcupine.Operation {
	committed := map[string]Event{}
	for _, e := range events {
		if e.Value != "" {
			committed[e.Value] = e
		}
	}
	ops := map[string][]porcupine.Operation{}
	clients := map[string]int{}
	client := func(name string) int {
		if _, ok := clients[name]; !ok {
			clients[name] = len(clients) + 1
		}
		return clients[name]
	}
	slices.SortFunc(writes, func(a, b Write) int { return a.Call.Compare(b.Call) })
	for _, w := range writes {
		op := porcupine.Operation{ClientId: client(w.Term), Input: w, Output: w.Outcome, Call: w.Call.UnixNano(), Return: w.Return.UnixNano()}
		if w.Outcome != Made && w.Outcome != Fenced {
			e, ok := committed[w.Value]
			if !ok {
				continue
			}
			op.Output, op.Return = Made, max(op.Call, e.At.UnixNano())
		}
		ops[w.Register] = append(ops[w.Register], op)
	}
	for _, r := range reads {
		ops[r.Register] = append(ops[r.Register], porcupine.Operation{ClientId: client("reader"), Input: r, Call: r.Call.UnixNano(), Return: r.Return.UnixNano()})
	}
	return ops
}
