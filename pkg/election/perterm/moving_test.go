package perterm_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/perterm"
)

// old starts a manager that elects its leader itself, as a program did before it moved here.
func old(t *testing.T, leases *electiontest.Client) (elected <-chan struct{}, stop func()) {
	t.Helper()
	s := newShelf(t)
	mux := http.NewServeMux()
	mux.Handle(electiontest.LeasesPath, electiontest.Handler(leases))
	mux.Handle("/", s)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.url = server.URL
	process := newProcess(t, s, func(o *manager.Options) {
		o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, "example", "default"
		o.LeaderElectionReleaseOnCancel, o.RetryPeriod = true, ptr.To(20*time.Millisecond)
	})
	return process.Elected(), start(t, process)
}

func TestReplicasThatHaveMovedCompeteWithThoseThatHaveNot(t *testing.T) {
	store := electiontest.NewStore("example")
	elected, stopFirst := old(t, store.Client())
	<-elected
	w := begin(t, perterm.Options{}, func(m *perterm.Manager) error { return setUp(m, nil) }, func(cfg *election.Config) { cfg.Client = store.Client() })
	eventually(t, "that one stands by", func() bool { s := w.elector.Status(); return s.State == "standing by" && s.Holder != "" })
	if w.look("one")["epoch"] != "" {
		t.Error("two lead")
	}
	stopFirst()
	w.awaitEpoch(1)

	leases := store.Client()
	elected, stopSecond := old(t, leases)
	defer stopSecond()
	eventually(t, "a manager that wants to lead", func() bool { return leases.Count(electiontest.List) > 5 })
	select {
	case <-elected:
		t.Error("two lead")
	default:
	}
	w.stop()
	<-elected
}
