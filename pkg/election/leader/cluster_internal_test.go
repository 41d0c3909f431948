package leader

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/regent-project/regent/pkg/election"
)

// leases answers List as a server does that has the Lease in a cluster, and counts.
type leases struct {
	coordinationv1client.LeaseInterface
	cluster string
	fault   error
	asked   int
}

func (l *leases) List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	l.asked++
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case l.fault != nil:
		return nil, l.fault
	case opts.FieldSelector != "metadata.name=example":
		return nil, errors.New("what was asked for is not one Lease: " + opts.FieldSelector)
	}
	lease := coordinationv1.Lease{}
	if l.cluster != "" {
		lease.Annotations = map[string]string{logicalcluster.AnnotationKey: l.cluster}
	}
	return &coordinationv1.LeaseList{Items: []coordinationv1.Lease{lease}}, nil
}

// A process whose Config names another cluster would lead again and again, and each of its writes would be refused.
func TestAClusterThatIsNotThatOfTheLeaseEndsRun(t *testing.T) {
	failed := errors.New("the work has failed")
	for name, c := range map[string]struct {
		config logicalcluster.Name
		server leases
		ended  error // why the term did
		exits  bool
		asked  int
	}{
		"the same":                                {"root", leases{cluster: "root"}, election.Fenced, false, 1},
		"another one":                             {"root", leases{cluster: "fmy7"}, election.Fenced, true, 1},
		"another one, where there is no Lease":    {"root", leases{cluster: "fmy7"}, election.Deposed, true, 1},
		"the server cannot be asked":              {"root", leases{cluster: "fmy7", fault: errors.New("503")}, election.Fenced, false, 1},
		"a server without clusters":               {"root", leases{}, election.Fenced, false, 1},
		"a Config without clusters":               {"", leases{cluster: "root"}, election.Fenced, false, 0},
		"a term that hands over waits for nobody": {"root", leases{cluster: "fmy7"}, election.Shutdown, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := election.Config{Namespace: "default", Name: "example", Cluster: c.config, Client: &c.server, RetryPeriod: time.Minute}
			lead := checksCluster(cfg, func(context.Context, election.Term) error { return failed })
			ended, end := context.WithCancelCause(t.Context())
			end(c.ended)
			switch err := lead(ended, election.Term{}); {
			case !c.exits && !errors.Is(err, failed):
				t.Errorf("the term ends with %v, want what its work returned", err)
			case c.exits && (!errors.Is(err, election.ErrExit) || !strings.Contains(err.Error(), `Config.Cluster is "root"`) || !strings.Contains(err.Error(), `"fmy7"`)):
				t.Errorf("the term ends with %v, want an end of the election that names both clusters", err)
			}
			if c.server.asked != c.asked {
				t.Errorf("the server was asked %d times, want %d", c.server.asked, c.asked)
			}
		})
	}
}
