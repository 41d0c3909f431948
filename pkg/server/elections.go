package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/detect"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/election/ranges"
	"github.com/regent-project/regent/pkg/server/build"
	"github.com/regent-project/regent/pkg/server/edge"
	"github.com/regent-project/regent/pkg/server/endpoints"
	"github.com/regent-project/regent/pkg/server/loopback"
	"github.com/regent-project/regent/pkg/server/terms"
)

// ElectionsLease is the name of the Lease for which the electing controllers' replicas compete in mode coordinated. Its
// holder elects the shard's leader.
const ElectionsLease = "regent-elections"

// elections are the elections that this replica stands in.
type elections struct {
	// leader stands for the shard's Lease, or group for those of its ranges: the other one is nil.
	leader *election.Elector
	group  *ranges.Group
	// electing stands for ElectionsLease. It and its recorder are nil unless the mode is coordinated.
	electing                         *election.Elector
	leaderRecorder, electingRecorder *recorder
	// client reaches the Leases.
	client *loopback.Client
	// probe watches the leader's process for standbys, and shows this process to other replicas. Nil: detection is
	// off.
	probe *detect.Detector
}

// newElections returns elections that nobody stands in yet. changed is called when this replica may know other replicas
// than before.
func (s *Server) newElections(caches *caches, changed func()) (*elections, error) {
	client := loopback.In(clusters.SystemAdmin, &s.api, s.identity.InProcess.Replica)
	client.Wrap(fence.Transport(fence.FromContext))
	cfg, err := s.electionConfig(client, changed)
	if err != nil {
		return nil, err
	}
	events := caches.clients.Kube.CoreV1().Events(cfg.Namespace)
	e := &elections{client: client, leaderRecorder: newRecorder(events, cfg.Namespace, cfg.Name, s.name)}
	cfg.Notify = e.leaderRecorder.notify
	if e.probe, err = s.newProbe(cfg); err != nil {
		return nil, err
	}
	if e.probe != nil {
		cfg.Detector = e.probe
	}
	switch {
	case !s.cfg.EnableLeaderElection:
		e.leader, err = election.NewUnelected(cfg)
	case s.cfg.leadsByRanges():
		e.group, err = ranges.New(ranges.Config{Election: cfg, Ranges: max(1, cfg.Ranges)})
	default:
		e.leader, err = election.New(cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot stand for election: %w", err)
	}
	if s.electsItself() {
		e.electingRecorder = newRecorder(events, cfg.Namespace, ElectionsLease, s.name)
		if e.electing, err = election.New(ofElections(cfg, e.probe, e.electingRecorder.notify)); err != nil {
			return nil, fmt.Errorf("cannot stand for election to Lease %s: %w", ElectionsLease, err)
		}
	}
	return e, nil
}

// run campaigns and leads, again and again, until ctx ends. It returns when all terms have ended. If one elector fails,
// the other one ends too.
func (e *elections) run(ctx context.Context, terms *terms.Runner) error {
	if e.group != nil {
		return e.group.Run(ctx, terms.RangeLeader(controllers.LeaderOnly, controllers.Electing))
	}
	if e.electing == nil {
		return e.leader.Run(ctx, terms.Leader(controllers.LeaderOnly, controllers.Electing))
	}
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return e.electing.Run(ctx, terms.Elect) })
	both.Go(func() error { return e.leader.Run(ctx, terms.Leader(controllers.LeaderOnly)) })
	return both.Wait()
}

// electionConfig returns the configuration with which this replica stands for the shard's Lease.
func (s *Server) electionConfig(client *loopback.Client, changed func()) (election.Config, error) {
	clients, err := client.Clients()
	if err != nil {
		return election.Config{}, err
	}
	cfg := s.cfg.Election
	cfg.Cluster = clusters.SystemAdmin
	cfg.ReplicasDirectory = filepath.Join(s.cfg.RootDirectory, replicasDirectory)
	cfg.Client = clients.Kube.CoordinationV1().Leases(cfg.Namespace)
	cfg.Candidates = clients.Kube.CoordinationV1beta1().LeaseCandidates(cfg.Namespace)
	cfg.Fenced = s.cfg.Fencing != edge.FencingWarn
	cfg.Replica, cfg.Instance, cfg.URL = s.name, s.instance, s.replicaURL()
	cfg.Changed = changed
	cfg.ForgetCommand = forgetCommand
	return cfg, nil
}

// leadsByRanges reports whether each replica leads a share of the shard's ranges. There may be one of them.
func (c *Config) leadsByRanges() bool {
	_, ok := c.Election.Mode.(election.ByPresence)
	return c.EnableLeaderElection && ok
}

// electionEndTimeout is how long the orderly end of the election takes at most. Ranges end one after the other, within
// a retry period.
func (c *Config) electionEndTimeout() time.Duration {
	within := c.Election.EndTimeout()
	if c.leadsByRanges() {
		within += c.Election.RetryPeriod
	}
	return within
}

// leadership returns what tells who leads, and ends terms.
func (e *elections) leadership() endpoints.Leadership {
	if e.group != nil {
		return e.group
	}
	return endpoints.OfLease(e.leader)
}

// electsItself reports whether the shard's leader is elected by the shard's own electing controllers (mode
// coordinated). These then need a Lease of their own.
func (s *Server) electsItself() bool {
	mode := s.cfg.Election.Mode
	return s.cfg.EnableLeaderElection && mode != nil && mode.Electing()
}

// ofElections derives the configuration for ElectionsLease from that for the shard's Lease. Its mode is always lease.
func ofElections(cfg election.Config, probe *detect.Detector, notify func(election.Notice)) election.Config {
	cfg.Name, cfg.Mode, cfg.Notify = ElectionsLease, election.Renewed{}, notify
	cfg.ReplicasDirectory = filepath.Join(cfg.ReplicasDirectory, ElectionsLease)
	cfg.Detector = nil
	if probe != nil {
		cfg.Detector = probe.For(ElectionsLease)
	}
	return cfg
}

// newProbe returns nil if detection is off.
func (s *Server) newProbe(e election.Config) (*detect.Detector, error) {
	if !s.cfg.EnableLeaderElection || e.Detection == election.DetectOff {
		return nil, nil
	}
	cfg := s.cfg.Detect
	cfg.Name, cfg.Replica, cfg.Changed = e.Name, s.name, e.Changed
	cfg.Listen = net.JoinHostPort(s.cfg.Serving.BindAddress.String(), strconv.Itoa(s.cfg.ProbePort))
	cfg.Advertise = s.cfg.Advertise.String()
	probe, err := detect.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot make the probe of other replicas: %w", err)
	}
	return probe, nil
}

// BuildVersion returns the version with which this build stands in elections: major, minor and patch of `regent
// version`.
func BuildVersion() string {
	v := utilversion.MustParseSemantic(build.Info().GitVersion)
	return fmt.Sprintf("%d.%d.%d", v.Major(), v.Minor(), v.Patch())
}

// forgetCommand is the command with which operators call ForgetReplica.
const forgetCommand = "regent forget-replica"

// ForgetReplica declares a replica's process dead, so that another one can take the Lease that it holds for life: see
// election.Forget. config must lead to the shard's logical cluster system:admin.
func ForgetReplica(ctx context.Context, config *rest.Config, namespace, process string) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	err = election.Forget(ctx, client.CoordinationV1().Leases(namespace), process)
	if err != nil && !errors.Is(err, election.ErrNoReplica) {
		return fmt.Errorf("%w (if that replica does not serve, give --server=https://<host>:<port> of one that does)", err)
	}
	return err
}
