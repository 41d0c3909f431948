package server

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/election/leader"
)

// leader.Config.Fenced: "a server that checks tokens refuses that as it refuses every write of a term that is over,
// whether it has Leases, and this one, or not".
func TestADryRunInAMissingNamespaceIsHeldToItsToken(t *testing.T) {
	s := startFencedShard(t)
	ctx := clusters.With(t.Context(), clusters.SystemAdmin)
	for name, client := range s.over {
		_, err := client.Resource(coordinationv1.SchemeGroupVersion.WithResource("leases")).Namespace("not-there-yet").Create(ctx, &unstructured.Unstructured{Object: fromYAML(
			"{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: l}}")}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !fence.IsFenced(err) {
			t.Errorf("with the token of %s: %v", name, err)
		}
	}
}

// An external program that starts before its namespace is made.
func TestALeaderWaitsForItsNamespace(t *testing.T) {
	cfg := config(t, t.TempDir())
	r := startReplica(t, cfg)
	defer func() { _ = r.stop(t) }()
	r.untilReady(t)
	l, err := leader.New(r.adminConfig(t, clusters.SystemAdmin), leader.Config{
		Namespace: "not-there-yet", Name: "l", Cluster: clusters.SystemAdmin, Fenced: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	began := time.Now()
	err = l.Run(ctx, func(context.Context, election.Term) error { return election.ErrExit })
	if time.Since(began) < 5*time.Second {
		t.Errorf("Run has ended after %v: %v", time.Since(began), err)
	}
}

// What electors take for granted of a server, and their tests of the store that stands for one.
func TestTheServerDoesWhatElectorsTakeForGranted(t *testing.T) {
	cfg := config(t, t.TempDir())
	r := startReplica(t, cfg)
	defer func() { _ = r.stop(t) }()
	r.untilReady(t)
	electiontest.CheckLeases(t, r.adminIn(t, clusters.SystemAdmin).CoordinationV1().Leases(metav1.NamespaceSystem), "an-example")
}
