package leader

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/fence"
)

// ProveFenced returns nil once the server of cfg.Client has shown that it does what Config.Fenced says for the Lease of
// cfg, and an error if it does not. Where it does not, standbys would succeed a leader that can still write. Leader.Run
// calls it by itself; it is for whoever gives an election.Config with Fenced to an elector. The client must send the
// tokens of its contexts (fence.Transport(fence.FromContext)).
//
// It makes a dry run with the token of a term that never was: a server that checks tokens refuses that as it refuses
// every write of a term that is over, whether it has Leases, and this one, or not. Until the server answers so or so,
// ProveFenced asks again, says in the log why, and returns the cause of ctx when that ends.
//
// held, if not nil, is told what this process waits for, and "" when it waits no more: election.Elector.Hold shows it
// in Status.
func ProveFenced(ctx context.Context, cfg election.Config, held func(why string)) error {
	if held == nil {
		held = func(string) {}
	}
	client := cfg.Client
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: cfg.Namespace, Name: cfg.Name}}
	token := fence.Token{Cluster: cfg.Cluster, Namespace: cfg.Namespace, Name: cfg.Name, UID: types.UID(uuid.NewString()), Holder: "nobody", Epoch: 1}
	var verdict error
	err := insist(ctx, held, "Cannot find out whether the server checks fencing tokens, which Config.Fenced promises: this process does not campaign until it can", func(ctx context.Context) error {
		_, err := client.Create(fence.With(ctx, token), lease, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case fence.IsFenced(err):
			verdict = nil
		case err == nil, apierrors.IsAlreadyExists(err):
			verdict = fmt.Errorf("leader: Config.Fenced is set, and the server does not check fencing tokens: it answered a dry run in the name of a term that never was with %w. "+
				"A Regent server checks them, and one with package etcdfence and its Guard.Handler. For any other leave Fenced out, and see SucceedUnfenced", orSuccess(err))
		case apierrors.IsBadRequest(err) && strings.Contains(err.Error(), fence.Header):
			verdict = fmt.Errorf("leader: Config.Cluster %q: the server checks fencing tokens, and cannot have this Lease: %w", cfg.Cluster, err)
		// no verdict: the namespace may be made later, and an API may be served later
		case apierrors.IsNotFound(err):
			return fmt.Errorf("a dry run of creating Lease %[1]s/%[2]s: make namespace %[1]s, if it is not there; a server that has it, and answers this, does not check fencing tokens: %[3]w", cfg.Namespace, cfg.Name, err)
		default:
			return fmt.Errorf("a dry run of creating Lease %s/%s (it takes the verb create): %w", cfg.Namespace, cfg.Name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return verdict
}

var errSuccess = errors.New("success")

// orSuccess returns err, or that there was none.
func orSuccess(err error) error {
	if err == nil {
		return errSuccess
	}
	return err
}
