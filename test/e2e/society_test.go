package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/test/e2e/harness"
)

// I18: one tenant does all at once that has ever stopped a shard, with the rights of an administrator of a
// workspace. What another one asks for and has controllers do meanwhile succeeds, the leader goes on in its term, and a
// replica that starts beside it becomes ready. How long it takes is printed, and not judged: BenchmarkSociety does
// that.
func TestOneTenantWhoDoesAllHarmAtOnceFailsNothingOfAnotherI18(t *testing.T) {
	s := startSociety(t)
	quiet := s.live(t, 5*time.Second, floodArgs{})
	harmed := s.live(t, 10*time.Second, floodArgs{harm: true, nice: 10})
	for _, l := range []life{quiet, harmed} {
		t.Logf("\n%s", l)
		for _, err := range l.failed {
			t.Errorf("of another tenant: %v", err)
		}
	}
	if told := harmed.flood.Statuses; told["200"] == 0 || told["201"] == 0 || told["404"] == 0 {
		t.Errorf("the harmful one was told %v: it has done none", told)
	}
	s.stillLeads(t)
	s.startsAgain(t)
}

// BenchmarkSociety prints how much longer the quiet tenant waits, for each thing that it does.
func BenchmarkSociety(b *testing.B) {
	s := startSociety(b)
	const each = 30 * time.Second
	quiet, before := s.live(b, each, floodArgs{}), s.memory()
	busy := s.live(b, each, floodArgs{burn: true, nice: 19})
	harmed, after := s.live(b, each, floodArgs{harm: true, nice: 19}), s.memory()
	fmt.Printf("\n| | quiet p50 | p99 | busy CPU p50 | p99 | harm p50 | p99 | times the quiet one's p99 | number | failed |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, what := range slices.Sorted(maps.Keys(quiet.took)) {
		q, u, h := phase{took: quiet.took[what]}, phase{took: busy.took[what]}, phase{took: harmed.took[what]}
		fmt.Printf("| %s | %v | %v | %v | %v | %v | %v | %.1f | %d | %d |\n", what, short(q.at(0.5)), short(q.at(0.99)), short(u.at(0.5)), short(u.at(0.99)),
			short(h.at(0.5)), short(h.at(0.99)), float64(h.at(0.99))/float64(q.at(0.99)), len(h.took), len(harmed.failed))
	}
	fmt.Printf("resident memory: %d MiB, then %d MiB; the harmful one: %s\n", before>>20, after>>20, harmed.flood.in(each))
	s.stillLeads(b)
	began := time.Now()
	s.startsAgain(b)
	fmt.Printf("killed and started again: ready after %v\n", short(time.Since(began)))
}

func short(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// society is a shard with a quiet tenant and one who does harm.
type society struct{ *floods }

func startSociety(t testing.TB) society {
	t.Helper()
	f := startFloods(t)
	for cluster, user := range map[string]string{f.greedy: "flooder", f.quiet: "quiet"} {
		if _, err := harness.Bind(t.Context(), f.shard.Kube(cluster), harness.User(user), "cluster-admin"); err != nil {
			t.Fatal(err)
		}
	}
	return society{f}
}

// life is how the quiet tenant fared, by what it did.
type life struct {
	took   map[string][]time.Duration // sorted
	failed []error
	flood  floodCounts
}

func (l life) String() (out string) {
	for _, what := range slices.Sorted(maps.Keys(l.took)) {
		out += fmt.Sprintf("%-28s %s\n", what, phase{took: l.took[what]})
	}
	return out + fmt.Sprintf("failed: %d; the other one: %v\n", len(l.failed), l.flood.Statuses)
}

// live has the quiet tenant do what tenants do for a while, one of each thing at a time, beside the other one. Each is
// done once at least.
func (s society) live(t testing.TB, while time.Duration, args floodArgs) life {
	t.Helper()
	end := s.start(t, args)
	until := time.Now().Add(while)
	l := life{took: map[string][]time.Duration{}}
	var mu sync.Mutex
	var living sync.WaitGroup
	for what, do := range map[string]func(context.Context, string) error{
		"a request":                  func(ctx context.Context, _ string) error { return s.ask(ctx, rand.IntN(5)) },
		"an object is collected":     s.collect,
		"a namespace goes":           s.namespace,
		"a definition is there":      s.define,
		"a workspace is ready, goes": s.workspace,
		"a token works":              s.token,
	} {
		living.Go(func() {
			for n := 0; n == 0 || time.Now().Before(until); n++ {
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
				err := do(ctx, fmt.Sprintf("quiet-%d-%d", began.UnixNano(), n))
				cancel()
				mu.Lock()
				l.took[what] = append(l.took[what], time.Since(began))
				if err != nil {
					l.failed = append(l.failed, fmt.Errorf("%s: %w", what, err))
				}
				mu.Unlock()
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	living.Wait()
	for _, took := range l.took {
		slices.Sort(took)
	}
	l.flood = end()
	return l
}

func (s society) rest() rest.Interface { return s.client.CoreV1().RESTClient() }

func (s society) post(ctx context.Context, path, body string) error {
	return s.rest().Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(ctx).Error()
}

func (s society) remove(ctx context.Context, path string) error {
	return s.rest().Delete().AbsPath(path).Do(ctx).Error()
}

// until asks for an object again and again until it is as wanted.
func (s society) until(ctx context.Context, path string, so func(body string, err error) bool) error {
	for {
		body, err := s.rest().Get().AbsPath(path).Do(ctx).Raw()
		if so(string(body), err) {
			return nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return errors.New("not in time: " + path)
		}
	}
}

func isGone(_ string, err error) bool { return apierrors.IsNotFound(err) }

// collect has the garbage collector delete what has lost its owner.
func (s society) collect(ctx context.Context, name string) error {
	const all = "/api/v1/namespaces/default/configmaps"
	owner, err := s.rest().Post().AbsPath(all).SetHeader("Content-Type", "application/json").
		Body([]byte(fmt.Sprintf(`{"metadata":{"name":%q}}`, name))).Do(ctx).Get()
	if err != nil {
		return err
	}
	uid := owner.(interface{ GetUID() types.UID }).GetUID()
	if err := s.post(ctx, all, fmt.Sprintf(`{"metadata":{"name":"%s-owned","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":%q,"uid":%q}]}}`, name, name, uid)); err != nil {
		return err
	}
	if err := s.remove(ctx, all+"/"+name); err != nil {
		return err
	}
	return s.until(ctx, all+"/"+name+"-owned", isGone)
}

func (s society) namespace(ctx context.Context, name string) error {
	if err := s.post(ctx, "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, name)); err != nil {
		return err
	}
	if err := s.remove(ctx, "/api/v1/namespaces/"+name); err != nil {
		return err
	}
	return s.until(ctx, "/api/v1/namespaces/"+name, isGone)
}

func (s society) define(ctx context.Context, name string) error {
	plural := strings.ReplaceAll(name, "-", "")
	const all = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	body := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[1]s.quiet.example.com"},"spec":{"group":"quiet.example.com",
"names":{"plural":%[1]q,"kind":%[2]q},"scope":"Namespaced","versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`
	if err := s.post(ctx, all, fmt.Sprintf(body, plural, "K"+plural)); err != nil {
		return err
	}
	if err := s.until(ctx, "/apis/quiet.example.com/v1/"+plural, func(_ string, err error) bool { return err == nil }); err != nil {
		return err
	}
	return s.remove(ctx, all+"/"+plural+".quiet.example.com")
}

func (s society) workspace(ctx context.Context, name string) error {
	const all = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
	if err := s.post(ctx, all, fmt.Sprintf(`{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":%q}}`, name)); err != nil {
		return err
	}
	ready := func(body string, err error) bool { return err == nil && strings.Contains(body, `"phase":"Ready"`) }
	if err := s.until(ctx, all+"/"+name, ready); err != nil {
		return err
	}
	if err := s.remove(ctx, all+"/"+name); err != nil {
		return err
	}
	return s.until(ctx, all+"/"+name, isGone)
}

// token has an account ask who it is.
func (s society) token(ctx context.Context, _ string) error {
	request := &authenticationv1.TokenRequest{}
	made, err := s.client.CoreV1().ServiceAccounts("default").CreateToken(ctx, "default", request, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	config := s.shard.Config(s.quiet)
	config = &rest.Config{Host: s.shard.URL + "/clusters/" + s.quiet, BearerToken: made.Status.Token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAFile: config.CAFile}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	return err
}

// memory returns what the replica has, in bytes.
func (s society) memory() int64 {
	bytes, _ := s.shard.Metric("process_resident_memory_bytes")
	return int64(bytes)
}

// startsAgain kills the replica: what the harmful one has left must not keep the next from being ready.
func (s society) startsAgain(t testing.TB) {
	t.Helper()
	s.shard.Kill()
	s.shard.Again()
	s.shard.WaitReady()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	if err := s.collect(ctx, "after-the-restart"); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}
