package control

import (
	"fmt"
	"runtime/debug"
)

// Panic is the error for a recovered panic, which then ends a term and not the process. A controller that recovers
// panics of its own goroutines returns one from Run. The supervisor logs its stack.
type Panic struct {
	// Where says what panicked, such as "reconcile of root|x".
	Where string
	// Value is the argument of panic.
	Value any
	// Stack is the stack of the goroutine when it panicked.
	Stack []byte
}

// Recovered returns the Panic for a value that recover returned. Call it in the function that called recover: only
// there the stack still shows what panicked.
func Recovered(where string, value any) *Panic {
	return &Panic{Where: where, Value: value, Stack: debug.Stack()}
}

// Error leaves out the stack, because errors also appear where a stack is a nuisance.
func (p *Panic) Error() string { return fmt.Sprintf("panic in %s: %v", p.Where, p.Value) }

// Unwrap returns Value, if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}
