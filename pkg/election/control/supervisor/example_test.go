package supervisor_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
)

// clients are what the constructors of a program get.
type clients struct {
	term election.Term
	http *http.Client
}

func ExampleLead() {
	run := func(ctx context.Context, elector *election.Elector, controllers ...control.Descriptor[election.Term]) error {
		return elector.Run(ctx, supervisor.Lead(controllers...))
	}
	_ = run
}

// Constructors that get clients of the term, which are closed when all controllers have been joined; policies; and word
// of what fails.
func ExampleLeader() {
	ctx, cancel := context.WithCancel(context.Background())
	asks := control.Descriptor[clients]{Name: "asks", New: func(_ context.Context, deps clients) (control.Controller, error) {
		fmt.Println("constructed in term", deps.term.Epoch())
		return &actor{run: func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return nil
		}}, nil
	}}
	registry, err := control.NewRegistry(asks)
	if err != nil {
		panic(err)
	}
	leader, err := supervisor.NewLeader(supervisor.Config{
		DrainTimeout: 3 * time.Second,
		Policies:     control.Policies{Controllers: map[string]control.Policy{"asks": control.StepDown}},
		OnEvent:      func(e supervisor.Event) { fmt.Println(e.Type, e.Controller, e.Err) },
	}, registry)
	if err != nil {
		panic(err)
	}
	lead := func(ctx context.Context, term election.Term) error {
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		return leader.Lead(ctx, term, clients{term: term, http: &http.Client{Transport: transport}})
	}
	fmt.Println(lead(ctx, election.Term{})) // the elector calls it
	// Output:
	// constructed in term 0
	// <nil>
}
