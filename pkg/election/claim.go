package election

import "context"

// claim is what entitles this process to a term: a lease that it holds, or, without election, that nobody holds the
// lease.
type claim interface {
	// term returns the term.
	term() Term
	// grounds returns what the claim knows of itself now.
	grounds() grounds
	// faltered receives a value when an attempt to renew has failed.
	faltered() <-chan struct{}
	// loss is closed when the claim itself finds that the term must end. Its grounds then say why.
	loss() <-chan struct{}
	// end tells the claim why the term ends. After Deposed it writes nothing more.
	end(cause error)
	// stop ends the renewals, and returns when they have ended.
	stop()
	// release gives up what is still held after stop, for cause. It goes on after the end of ctx, and has a timeout
	// of its own.
	release(ctx context.Context, cause error) error
}

// sharedClaim is a claim that rests on what its process holds for all its terms together, such as a Presence.
type sharedClaim interface {
	// joined says that the work of the term has stopped.
	joined()
	// lapse gives up what is held after stop, although work of the term goes on. It is called when the lease would
	// have expired if it were renewed. release is called later all the same.
	lapse(ctx context.Context, cause error) error
}
