package controllers

import (
	"fmt"
	"runtime/debug"
)

// Panic is the error that a contained panic becomes, so that it ends a term and not the process. A controller that
// contains panics of goroutines of its own returns one from Run; the supervisor logs its stack.
type Panic struct {
	// Where says what panicked, as in "reconcile of root|x".
	Where string
	// Value is what panic was called with.
	Value any
	// Stack is the goroutine's at the time.
	Stack []byte
}

// Recovered returns the Panic for a value that recover returned. Call it in the function that called recover: there
// the stack still shows who panicked.
func Recovered(where string, value any) *Panic {
	return &Panic{Where: where, Value: value, Stack: debug.Stack()}
}

// Error leaves the stack out, because errors are also written where a stack is a nuisance.
func (p *Panic) Error() string { return fmt.Sprintf("panic in %s: %v", p.Where, p.Value) }

// Unwrap returns the value, if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}
