package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/kcp-dev/logicalcluster/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/fence"
)

// checksCluster returns lead, which ends the election if the Lease is in another logical cluster than Config.Cluster
// says. The tokens then name a Lease that nobody holds, so each term would end with its first write, for ever. It looks
// only after a term that the server has ended: there need not be a Lease before, and no handover waits for the answer.
func checksCluster(cfg election.Config, lead election.LeadFunc) election.LeadFunc {
	if cfg.Cluster == "" {
		return lead
	}
	return func(ctx context.Context, term election.Term) error {
		err := lead(ctx, term)
		cause := context.Cause(ctx)
		if !fence.IsFenced(err) && !errors.Is(cause, election.Fenced) && !errors.Is(cause, election.Deposed) {
			return err
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.RetryPeriod)
		defer cancel()
		cfg := cfg
		cfg.Name = cmp.Or(term.Token().Name, cfg.Name) // of the range, if there are several
		found, unknown := clusterOf(ctx, cfg)
		if unknown != nil || found == "" || found == cfg.Cluster {
			return err
		}
		return fmt.Errorf("leader: Config.Cluster is %q, and the Lease %s/%s is in logical cluster %q, to which the rest.Config leads: give that name, or another rest.Config: %w",
			cfg.Cluster, cfg.Namespace, cfg.Name, found, election.ErrExit)
	}
}

// clusterOf returns the logical cluster that the Lease says it is in. It is empty if there is no Lease, or the server
// has no logical clusters. To list takes no right that the election has not got.
func clusterOf(ctx context.Context, cfg election.Config) (logicalcluster.Name, error) {
	list, err := cfg.Client.List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, cfg.Name).String()})
	if err != nil || len(list.Items) == 0 {
		return "", err
	}
	return logicalcluster.From(&list.Items[0]), nil
}
