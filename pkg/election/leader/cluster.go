package leader

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/kcp-dev/logicalcluster/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/regent-project/regent/pkg/election"
)

// checksCluster returns lead, at the end of whose first term the process finds out whether the Lease is where
// Config.Cluster says. If it is elsewhere, the tokens name a Lease that nobody holds: each term would end with its
// first write, for ever. Before the first term there need not be a Lease to look at, and afterwards no takeover waits
// for the answer.
func checksCluster(cfg election.Config, lead election.LeadFunc) election.LeadFunc {
	if cfg.Cluster == "" {
		return lead
	}
	var isChecked atomic.Bool
	return func(ctx context.Context, term election.Term) error {
		err := lead(ctx, term)
		if isChecked.Load() {
			return err
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.RetryPeriod)
		defer cancel()
		found, unknown := clusterOf(ctx, cfg)
		if unknown != nil || found == "" {
			return err // the end of the next term tells
		}
		if found != cfg.Cluster {
			return fmt.Errorf("leader: Config.Cluster is %q, and the Lease %s/%s is in logical cluster %q, to which the rest.Config leads: give that name, or another rest.Config: %w",
				cfg.Cluster, cfg.Namespace, cfg.Name, found, election.ErrExit)
		}
		isChecked.Store(true)
		return err
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
