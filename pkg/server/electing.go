package server

import (
	"context"
	"fmt"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/version"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/supervisor"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/detect"
)

// ElectionsLease is the Lease of the electing controllers, where the shard's leader is elected by them.
const ElectionsLease = "regent-elections"

// electsItself reports whether the shard's own leader is elected by its electing controllers, which then cannot be the leader's.
func (r *run) electsItself() bool {
	return r.cfg.Election.Enabled && r.cfg.Election.Mode == election.ModeCoordinated
}

// BuildVersion is the version that this build stands with in elections: major, minor and patch of what `regent version` says.
func BuildVersion() string {
	v, err := utilversion.ParseSemantic(version.Get().GitVersion)
	if err != nil {
		return "0.0.0" // a build without a version
	}
	return fmt.Sprintf("%d.%d.%d", v.Major(), v.Minor(), v.Patch())
}

// ofElections is the election of who elects: a plain one, by the same means.
func ofElections(cfg election.Config, probe *detect.Detector, notify func(election.Notice)) election.Config {
	cfg.Name, cfg.Mode, cfg.Notify = ElectionsLease, election.ModeLease, notify
	cfg.ReplicasDirectory = filepath.Join(cfg.ReplicasDirectory, ElectionsLease)
	cfg.Detector = nil
	if probe != nil {
		cfg.Detector = probe.For(ElectionsLease)
	}
	return cfg
}

// runElectors runs the electors until ctx ends, and returns when all have ended: the first error ends them all.
func (r *run) runElectors(ctx context.Context) error {
	if r.elections == nil {
		return r.elector.Run(ctx, r.lead)
	}
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return r.elections.Run(ctx, r.elect) })
	both.Go(func() error { return r.elector.Run(ctx, r.lead) })
	return both.Wait()
}

// elect is a term of the electing controllers.
func (r *run) elect(ctx context.Context, term election.Term) error {
	cfg := r.supervision(controllers.Electing, func(e supervisor.Event) {
		if e.Type == supervisor.TermFailed {
			election.Fail(ctx, ofTerm(e.Err, nil))
		}
	})
	return ofTerm(r.control(ctx, r.cfg.Registry.Scoped(controllers.Electing), controllers.Electing, cfg, term.Token(), r.tokens.leader), nil)
}
