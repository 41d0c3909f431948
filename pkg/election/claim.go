package election

import "context"

// claim is what a term stands on: a lease that is held, or nothing but that nobody else holds it.
type claim interface {
	// term is the term that the claim is for.
	term() Term
	// grounds are what the claim knows of itself now.
	grounds() grounds
	// faltered brings word when an attempt to renew has failed.
	faltered() <-chan struct{}
	// lost is closed when the claim finds by itself that the term must end; its grounds then say why.
	lost() <-chan struct{}
	// end tells the claim why the term ends: if it is deposed, nothing more is written.
	end(cause error)
	// stop ends renewing and returns when that has ended.
	stop()
	// release gives up what stop has left, for cause. It bounds itself and does not heed ctx's end.
	release(ctx context.Context, cause error) error
}
