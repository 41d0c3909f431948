package control

import "context"

// Reconcile is one call of a controller's reconcile function.
type Reconcile struct {
	// Controller is the name of the loop.
	Controller string
	// Key is what is reconciled.
	Key any
	// Cause says why.
	Cause Cause
	// Attempt is 1 for the first call, and grows while the calls for the key fail.
	Attempt int
}

// Cause is why a key is reconciled.
type Cause string

const (
	// Change: something has just happened.
	Change Cause = "change"
	// Swept: the pass over all objects has found the key.
	Swept Cause = "sweep"
	// Retry: the reconcile before failed.
	Retry Cause = "retry"
)

// Observer is called before each reconcile, on the worker's goroutine. The reconcile gets the returned context. When it
// has returned, or panicked, done is called with its error; with nil if the end of the term has cut it short.
type Observer func(ctx context.Context, of Reconcile) (observed context.Context, done func(error))

type observerKey struct{}

// WithObserver returns a context for controllers whose reconciles are observed, to trace them for example.
func WithObserver(ctx context.Context, o Observer) context.Context {
	return context.WithValue(ctx, observerKey{}, o)
}

// ObserverOf returns what WithObserver has put into ctx, or nil. Package loop calls it for its controllers.
func ObserverOf(ctx context.Context) Observer {
	o, _ := ctx.Value(observerKey{}).(Observer)
	return o
}
