package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server/history"
	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/test/etcdtest"
)

// firstPage is the ConfigMap with the first terms.
const firstPage = history.Name + "-00"

// writesOnce is a controller that reconciles and writes at its beginning, so that its takeover is measured at once.
func writesOnce(ctx context.Context, deps controllers.Deps) error {
	in := clusters.With(ctx, clusters.SystemAdmin)
	_, err := deps.Clients.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(in, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("written-%d", deps.Token.Epoch)},
	}, metav1.CreateOptions{})
	if err != nil && ctx.Err() == nil && !fence.IsFenced(err) {
		return err
	}
	control.Reached(ctx, control.Working)
	control.Reached(ctx, control.Reconciled)
	<-ctx.Done()
	return nil
}

// untilLed waits until a replica tells that a term of that epoch is the latest and goes on, and how the one before
// ended, and returns all terms by epoch.
func untilLed(t *testing.T, r *replica, epoch int64) map[int64]status.Term {
	t.Helper()
	told := untilAnswered(t, r, status.TermsPath, fmt.Sprintf("term %d is remembered", epoch), func(all status.Terms) bool {
		return len(all.Terms) > 0 && all.Terms[0].Epoch == epoch && all.Terms[0].Trigger != "" && all.Terms[0].Ended.IsZero() &&
			(len(all.Terms) == 1 || all.Terms[1].EndCause != "")
	})
	out := map[int64]status.Term{}
	for n, term := range told.Terms {
		if _, twice := out[term.Epoch]; twice || n > 0 && told.Terms[n-1].Epoch != term.Epoch+1 {
			t.Errorf("the terms are not in their order: %+v", told.Terms)
		}
		out[term.Epoch] = term
	}
	return out
}

// Whoever is asked tells the same: who led, why, and how it ended, also of terms whose leaders are gone, and of those
// who have no replica.
func TestTheTermsOfAShardAreRememberedWithTheirCauses(t *testing.T) {
	t.Parallel() // most of it is waiting
	leader, standby := startTwo(t, writesOnce)
	admin := leader.adminIn(t, clusters.SystemAdmin)
	both := []*replica{leader, standby}
	is := func(got status.Term, replica, trigger, cause, reason string) {
		t.Helper()
		if got.EndCause == "fenced" && cause == "deposed" {
			cause, reason = "fenced", "" // a write was refused before the leader saw the Lease
		}
		if got.Replica != replica || got.Trigger != trigger || got.EndCause != cause || !strings.Contains(got.EndReason, reason) || got.Began.IsZero() || got.Ended.IsZero() || got.Ended.Before(got.Began) {
			t.Errorf("a term is %+v, want replica %q, trigger %q, which ended because of %q: %q", got, replica, trigger, cause, reason)
		}
	}
	leads := func(epoch int64) *replica {
		t.Helper()
		term := untilLed(t, leader, epoch)[epoch]
		return both[slices.IndexFunc(both, func(r *replica) bool { return r.server.name == term.Replica })]
	}
	first := untilLed(t, standby, 1)[1]
	if first.Replica != leader.server.name || first.Trigger != string(election.TriggerNone) || first.Phases["first_write"] == 0 || first.Phases["first_reconcile"] == 0 {
		t.Errorf("the first term is %+v", first)
	}

	if err := leader.admin(t).Post().AbsPath("/election/step-down").Body([]byte(fmt.Sprintf(`{"reason": "to see it told", "to": %q}`, standby.server.name))).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	for _, r := range both {
		is(untilLed(t, r, 2)[1], leader.server.name, "none", "step down", "on request: ")
	}

	// A stranger takes the Lease, and leaves it to expire.
	at := admin.CoordinationV1().Leases(metav1.NamespaceSystem)
	stolen := `{"spec": {"holderIdentity": "stranger", "leaseTransitions": 3, "leaseDurationSeconds": 1, "acquireTime": %[1]q, "renewTime": %[1]q}}`
	now := time.Now().UTC().Format(metav1.RFC3339Micro)
	if _, err := at.Patch(t.Context(), "regent-controllers", types.MergePatchType, []byte(fmt.Sprintf(stolen, now)), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, r := range both {
		told := untilLed(t, r, 4)
		is(told[2], standby.server.name, "release", "deposed", "stranger")
		is(told[3], "", "", "expiry", "")
		if told[3].Holder != "stranger" {
			t.Errorf("the third term is %+v", told[3])
		}
	}

	third := leads(4)
	if err := at.Delete(t.Context(), "regent-controllers", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, r := range both {
		is(untilLed(t, r, 5)[4], third.server.name, "expiry", "deposed", "deleted")
	}

	// The leader's process stops. The other one tells all of it.
	gone := leads(5)
	stays := both[0]
	if gone == stays {
		stays = both[1]
	}
	gone.cancel()
	told := untilLed(t, stays, 6)
	is(told[5], gone.server.name, "deletion", "shutdown", "")
	if len(told) != 6 {
		t.Errorf("%d terms are told: %+v", len(told), told)
	}

	// One write for each term of a replica: five records, four updates after the creation.
	eventually(t, "the last term is recorded, too", func(ctx context.Context) error {
		stored, err := stays.adminIn(t, clusters.SystemAdmin).CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, firstPage, metav1.GetOptions{})
		if err == nil && len(stored.Data) != 5 {
			err = fmt.Errorf("there are %d records: %v", len(stored.Data), stored.Data)
		}
		return err
	})
	if got := versionOf(t, stays, firstPage); got != 5 {
		t.Errorf("%d writes for 5 terms of replicas", got)
	}
	// A leader that was deposed, and writes late.
	config := stays.adminConfig(t, clusters.SystemAdmin)
	config.Wrap(fence.Transport(fence.Of(fence.Token{
		Cluster: clusters.SystemAdmin, Namespace: metav1.NamespaceSystem, Name: "regent-controllers", UID: "u", Holder: told[5].Holder, Epoch: 5,
	})))
	err := history.Book{Namespace: metav1.NamespaceSystem}.Add(t.Context(), kubernetes.NewForConfigOrDie(config), history.Entry{Term: status.Term{Epoch: 5, Holder: "late"}})
	if !fence.IsFenced(err) {
		t.Errorf("a late record: %v", err)
	}
	if got := versionOf(t, stays, firstPage); got != 5 {
		t.Errorf("%d writes after a late record", got)
	}
}

// versionOf returns how often a ConfigMap of system:admin was written.
func versionOf(t *testing.T, r *replica, name string) int64 {
	t.Helper()
	client := etcdtest.Client(t, r.server.cfg.Etcd)
	resp, err := client.Get(t.Context(), "/registry/core/configmaps/"+clusters.SystemAdmin.String()+"/"+metav1.NamespaceSystem+"/"+name)
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("%v, %v", resp, err)
	}
	return resp.Kvs[0].Version
}

// What somebody has done to the record costs history, and nothing else.
func TestARecordThatSomebodySpoiltIsBegunAnew(t *testing.T) {
	cfg := withController(t, config(t, t.TempDir()), writesOnce)
	r := startReplica(t, cfg)
	defer func() { _ = r.stop(t) }()
	at := r.adminIn(t, clusters.SystemAdmin).CoreV1().ConfigMaps(metav1.NamespaceSystem)
	for n, spoil := range []func() error{
		func() error { return at.Delete(t.Context(), firstPage, metav1.DeleteOptions{}) },
		func() error {
			_, err := at.Patch(t.Context(), firstPage, types.MergePatchType, []byte(`{"data": {"0000000001": "{", "x": "y", "9999999999": "{}"}, "binaryData": {"b": "AAAA"}}`), metav1.PatchOptions{})
			return err
		},
	} {
		epoch := int64(n + 1)
		untilLed(t, r, epoch)
		eventually(t, "the term is recorded", func(ctx context.Context) error {
			_, err := at.Get(ctx, firstPage, metav1.GetOptions{})
			return err
		})
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if got := ask[status.Terms](t, r, status.TermsPath); len(got.Terms) == 0 || got.Terms[0].Epoch != epoch {
			t.Errorf("it does not tell who leads: %+v", got)
		}
		if err := r.admin(t).Post().AbsPath("/election/step-down").Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
		if told := untilLed(t, r, epoch+1); told[epoch].EndCause != "step down" {
			t.Errorf("of the last term it tells %+v", told[epoch])
		}
	}
	eventually(t, "the record of the next term is a good one", func(ctx context.Context) error {
		stored, err := at.Get(ctx, firstPage, metav1.GetOptions{})
		if err == nil && (stored.BinaryData != nil || stored.Data["x"] != "") {
			err = fmt.Errorf("it has %v and %v", stored.Data, stored.BinaryData)
		}
		return err
	})
}

// A store that takes no records, or is slow to, delays no handover.
func TestARecordThatCannotBeWrittenHoldsUpNobody(t *testing.T) {
	for name, fault := range map[string]func(*http.Request) error{
		"refused": func(*http.Request) error { return errors.New("no space") },
		"slow": func(req *http.Request) error {
			<-req.Context().Done()
			return req.Context().Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			leader, standby := startTwo(t, writesOnce, func(cfg *Config) {
				cfg.termTransport = func(next http.RoundTripper) http.RoundTripper {
					return roundTrip(func(req *http.Request) (*http.Response, error) {
						// also in a selector
						if strings.Contains(req.URL.RequestURI(), history.Name) {
							return nil, fault(req)
						}
						return next.RoundTrip(req)
					})
				}
			})
			began := time.Now() // no record was written before, so the end of the term tries to
			if err := leader.admin(t).Post().AbsPath("/election/step-down").Do(t.Context()).Error(); err != nil {
				t.Fatal(err)
			}
			told := untilAnswered(t, standby, status.TermsPath, "the other one leads", func(all status.Terms) bool {
				return len(all.Terms) > 0 && all.Terms[0].Replica == standby.server.name && (len(all.Terms) == 1 || all.Terms[1].EndCause != "")
			})
			if took := time.Since(began); took > 10*time.Second { // the lease would last for 15 s
				t.Errorf("the handover took %v", took)
			}
			if len(told.Terms) != 2 || told.Terms[1].EndCause != "step down" {
				t.Errorf("without records the replica tells what it has seen: %+v", told)
			}
		})
	}
}

func TestTheTermsOfAnotherShardAreAskedOfIt(t *testing.T) {
	t.Parallel() // most of it is waiting
	i := install(t, "eu1")
	root := i.shards["root"].at.replica
	told := untilAnswered(t, root, status.TermsPath+"?shard=eu1", "eu1 tells", func(all status.Terms) bool { return all.Shard == "eu1" })
	if own := ask[status.Terms](t, root, status.TermsPath+"?shard=root"); own.Shard != "root" || told.Terms == nil {
		t.Errorf("%+v", own)
	}
	if err := root.admin(t).Get().AbsPath(status.TermsPath).Param("shard", "nowhere").Do(t.Context()).Error(); !apierrors.IsNotFound(err) {
		t.Errorf("of a shard that is not there: %v", err)
	}
	if got := root.get(t, status.TermsPath); got != http.StatusUnauthorized {
		t.Errorf("a stranger got %d", got)
	}
}
