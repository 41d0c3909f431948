// Package control is the contract of controllers that run in terms: what a controller is (Controller), how it is
// described (Descriptor), and what its failure does (Policy). D is what a program gives to its constructors:
// election.Term, or a struct of its own with clients, informers and the term.
//
//	newEpochs := func(_ context.Context, term election.Term) (control.Controller, error) {
//		l := loop.New("epochs", 2, reconcile)   // a queue and two workers
//		loop.Watch(l, pods.Informer(), keys)    // whose keys come from an informer of the process
//		return l, nil
//	}
//	epochs := control.Descriptor[election.Term]{Name: "epochs", New: newEpochs}
//	err := elector.Run(ctx, supervisor.Lead(epochs))
//
// Package supervisor runs a set of controllers for a term. Package loop is a Controller with a work queue. Neither is
// needed by the other: any type with a Run method is a Controller.
//
// # What a controller promises
//
// Everything that Run starts has ended when Run returns: goroutines are joined, event handlers removed, queues shut
// down. This is what lets the process lead again. A controller that returns later than its drain timeout keeps the
// process from campaigning, and is named with its stacks.
//
// # What it is given
//
// Informers live as long as the process, so that standbys have warm caches: start them before the election, and wire
// them to the controllers of each term. Clients whose requests carry a fencing token belong to the term.
package control
