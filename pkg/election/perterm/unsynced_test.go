package perterm_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/perterm"
)

// secretsAreForbidden makes a process whose account may not list Secrets, and that waits half a second for a kind.
func secretsAreForbidden(o *manager.Options) {
	secretsAre(func(next http.RoundTripper) http.RoundTripper { return forbidding{next} })(o)
}

// noSecrets are ways in which Secrets cannot be had.
var noSecrets = map[string]func(next http.RoundTripper) http.RoundTripper{
	"are forbidden": func(next http.RoundTripper) http.RoundTripper { return forbidding{next} },
	"hang":          func(next http.RoundTripper) http.RoundTripper { return without{next, hangs} },
	"break off":     func(next http.RoundTripper) http.RoundTripper { return without{next, breaks} },
}

// without answers requests for Secrets by itself.
type without struct {
	next   http.RoundTripper
	answer func(*http.Request) (*http.Response, error)
}

func (w without) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.Contains(req.URL.Path, "/secrets") {
		return w.answer(req)
	}
	return w.next.RoundTrip(req)
}

func hangs(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

func breaks(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

// secretsAre makes a process for which Secrets are as change makes them, and that waits half a second for a kind.
func secretsAre(change func(next http.RoundTripper) http.RoundTripper) func(o *manager.Options) {
	return func(o *manager.Options) { withSecrets(o, change) }
}

func withSecrets(o *manager.Options, change func(next http.RoundTripper) http.RoundTripper) {
	o.Controller.CacheSyncTimeout = 500 * time.Millisecond
	o.MapperProvider = func(_ *rest.Config, c *http.Client) (meta.RESTMapper, error) {
		c.Transport = change(c.Transport)
		return secretsMapper(nil, nil)
	}
}

func secretsMapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	return m, nil
}

// Whatever a term needs of a kind that it cannot have, the term says which kind that is: to who reads, or by its end.
// Nothing waits for ever.
func TestAKindThatCannotBeHadIsNamed(t *testing.T) {
	const want = "the cache has not synced *v1.Secret within 500ms"
	secret := client.ObjectKey{Namespace: "default", Name: "x"}
	for name, work := range map[string]func(m *perterm.Manager, ctx context.Context) error{
		"a get": func(m *perterm.Manager, ctx context.Context) error {
			return m.GetClient().Get(ctx, secret, &corev1.Secret{})
		},
		"a list": func(m *perterm.Manager, ctx context.Context) error {
			err := m.GetClient().List(ctx, &corev1.SecretList{})
			if err != nil && strings.Contains(err.Error(), "*v1.SecretList within") {
				err = errors.New(want)
			}
			return err
		},
		"a get of the cache": func(m *perterm.Manager, ctx context.Context) error {
			return m.GetCache().Get(ctx, secret, &corev1.Secret{})
		},
		"an informer": func(m *perterm.Manager, ctx context.Context) error {
			_, err := m.GetCache().GetInformer(ctx, &corev1.Secret{})
			return err
		},
		"an informer that is waited for": func(m *perterm.Manager, ctx context.Context) error {
			if _, err := m.GetCache().GetInformer(ctx, &corev1.Secret{}, cache.BlockUntilSynced(false)); err != nil {
				return err
			}
			m.GetCache().WaitForCacheSync(ctx)
			<-ctx.Done()
			return errors.New(want) // what the term's end says is looked at below
		},
	} {
		for how, change := range noSecrets {
			t.Run(name+", Secrets "+how, func(t *testing.T) {
				t.Parallel() // most of it is waiting
				aKindThatCannotBeHadIsNamed(t, change, work, want)
			})
		}
	}
}

func aKindThatCannotBeHadIsNamed(t *testing.T, change func(next http.RoundTripper) http.RoundTripper, work func(m *perterm.Manager, ctx context.Context) error, want string) {
	said := make(chan error, 1)
	w := beginIn(t, secretsAre(change), perterm.Options{Join: logLate(t)}, func(m *perterm.Manager) error {
		if m.Term.Epoch() > 1 {
			return setUp(m, nil)
		}
		return m.Add(manager.RunnableFunc(func(ctx context.Context) error {
			err := work(m, ctx)
			said <- err
			return err
		}))
	})
	defer w.stop()
	if err := <-said; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("it says %v, want %q", err, want)
	}
	w.awaitEpoch(2)
	if line := w.log.line("The term has ended"); !strings.Contains(line, "Secret") {
		t.Errorf("the log does not name the kind: %s", line)
	}
}

// What setup asks for fails the term, by name, and the next one tries again.
func TestASetUpThatWaitsForAKindFails(t *testing.T) {
	w := beginIn(t, secretsAreForbidden, perterm.Options{}, func(m *perterm.Manager) error {
		if m.Term.Epoch() == 1 {
			_, err := m.GetCache().GetInformer(context.Background(), &corev1.Secret{})
			return err
		}
		return setUp(m, nil)
	})
	defer w.stop()
	w.awaitEpoch(2)
	if line := w.log.line("The term has ended"); !strings.Contains(line, "cannot set up the term: the cache has not synced *v1.Secret") {
		t.Errorf("the log: %s", line)
	}
}

// An index that the process has removed with its informer is there again in the next term.
func TestAnIndexOfAnInformerThatTheProcessHasRemovedComesAgain(t *testing.T) {
	const field = "epoch"
	found := make(chan int, 10)
	var w *world
	ready := make(chan struct{})
	w = begin(t, perterm.Options{}, func(m *perterm.Manager) error {
		<-ready
		if err := m.GetFieldIndexer().IndexField(context.Background(), &corev1.ConfigMap{}, field, func(client.Object) []string { return []string{"any"} }); err != nil {
			return err
		}
		return m.Add(manager.RunnableFunc(func(ctx context.Context) error {
			var list corev1.ConfigMapList
			if err := m.GetClient().List(ctx, &list, client.MatchingFields{field: "any"}); err != nil {
				return err
			}
			found <- len(list.Items)
			if m.Term.Epoch() == 1 {
				if err := w.process.GetCache().RemoveInformer(ctx, &corev1.ConfigMap{}); err != nil {
					return err
				}
			}
			<-ctx.Done()
			return nil
		}))
	})
	close(ready)
	defer w.stop()
	for range 2 {
		select {
		case n := <-found:
			if n != 1 {
				t.Errorf("%d objects by the index, want 1", n)
			}
		case <-time.After(soon):
			t.Fatalf("nothing was listed by the index: %s", w.log.line("The term has ended"))
		}
		if w.elector.Status().Epoch == 1 {
			w.stepDown("the next, please")
		}
	}
}

// A controller that is added to the manager of the process after Add is refused, too: when the process starts.
func TestWhatIsAddedLaterAndNeedsALeaderEndsTheProcess(t *testing.T) {
	process := newProcess(t, newShelf(t))
	if err := perterm.Add(process, exits{}, perterm.Options{}, func(*perterm.Manager) error { return nil }); err != nil {
		t.Fatal(err)
	}
	c := &clerk{Client: process.GetClient()}
	if err := ctrl.NewControllerManagedBy(process).Named("left-behind").For(&corev1.ConfigMap{}).
		WithOptions(controller.Options{SkipNameValidation: ptr.To(true)}).Complete(c); err != nil {
		t.Fatal(err)
	}
	if err := process.Add(needs(func(context.Context) error { t.Error("it runs"); return nil })); err != nil {
		t.Fatal(err)
	}
	err := process.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "left-behind") || !strings.Contains(err.Error(), "Add it to the manager of the term") {
		t.Errorf("the process ended with %v", err)
	}
	process.GetHTTPClient().CloseIdleConnections()
}

// A program that runs the elector itself, and asks for the function of its terms when its requests cannot be given
// tokens any more, does not lead unfenced. While its manager starts nothing is changed under its requests.
func TestAFencedTermWhoseClientsSendNoTokensIsRefused(t *testing.T) {
	for _, when := range []string{"it has started", "it starts"} {
		t.Run(when, func(t *testing.T) {
			var allowed atomic.Bool
			allowed.Store(when == "it has started")
			asked := make(chan struct{}, 1)
			process := newProcess(t, newShelf(t), func(o *manager.Options) {
				o.MapperProvider = func(_ *rest.Config, c *http.Client) (meta.RESTMapper, error) {
					c.Transport = &gate{c.Transport, &allowed, asked}
					return mapper(), nil
				}
			})
			if _, err := process.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{}, cache.BlockUntilSynced(false)); err != nil {
				t.Fatal(err)
			}
			stop := start(t, process)
			defer stop()
			if <-asked; allowed.Load() {
				<-process.Elected()
			}
			made := make(chan election.LeadFunc)
			go func() {
				made <- perterm.Lead(process, perterm.Options{}, func(*perterm.Manager) error { t.Error("it leads"); return nil })
			}()
			allowed.Store(true)
			lead := <-made
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			var err error
			_ = newElector(t, electiontest.NewStore("example"), fenced).Run(ctx, func(ctx context.Context, term election.Term) error {
				err = lead(ctx, term)
				return errors.Join(election.ErrExit, err)
			})
			if err == nil || !strings.Contains(err.Error(), "call it before") {
				t.Errorf("the term ended with %v", err)
			}
		})
	}
}

// A read for which the server is asked may take longer than a kind that is not cached may take to sync: that is the
// server's to say, and the caller's.
func TestAReadThatAsksTheServerIsNotBoundedAsThatOfAKind(t *testing.T) {
	read := make(chan error, 1)
	w := beginIn(t, func(o *manager.Options) {
		withSecrets(o, func(next http.RoundTripper) http.RoundTripper { return without{next, slow} })
		o.Client.Cache = &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}
	}, perterm.Options{}, func(m *perterm.Manager) error {
		return m.Add(manager.RunnableFunc(func(ctx context.Context) error {
			read <- m.GetClient().Get(ctx, client.ObjectKey{Namespace: "default", Name: "x"}, &corev1.Secret{})
			<-ctx.Done()
			return nil
		}))
	})
	if err := <-read; err != nil {
		t.Error(err)
	}
	w.stop()
}

// slow answers when a kind would long be given up.
func slow(req *http.Request) (*http.Response, error) {
	select {
	case <-time.After(1500 * time.Millisecond):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: req,
		Body: io.NopCloser(strings.NewReader(`{"kind":"Secret","apiVersion":"v1","metadata":{"namespace":"default","name":"x"}}`)),
	}, nil
}

// A process that waits for a cache before it campaigns says so, in its log and in its Status, and campaigns when the
// cache is there.
func TestAProcessThatWaitsForItsWarmKindsSaysSo(t *testing.T) {
	var allowed atomic.Bool
	w := beginIn(t, func(o *manager.Options) {
		o.MapperProvider = func(_ *rest.Config, c *http.Client) (meta.RESTMapper, error) {
			c.Transport = &gate{c.Transport, &allowed, make(chan struct{}, 1)}
			return mapper(), nil
		}
	}, perterm.Options{Warm: []client.Object{&corev1.ConfigMap{}}}, func(m *perterm.Manager) error { return setUp(m, nil) })
	defer w.stop()
	eventually(t, "it says what it waits for", func() bool { return strings.Contains(w.elector.Status().Held, "*v1.ConfigMap of perterm.Options.Warm") })
	if line := w.log.line("does not campaign yet"); !strings.Contains(line, "*v1.ConfigMap") {
		t.Errorf("the log does not say it: %s", line)
	}
	allowed.Store(true)
	w.awaitEpoch(1)
	if held := w.elector.Status().Held; held != "" {
		t.Errorf("it leads, and is held by %s", held)
	}
}

// gate forbids all requests until they are allowed.
type gate struct {
	next    http.RoundTripper
	allowed *atomic.Bool
	asked   chan struct{} // of a capacity of 1: there was a request
}

func (g *gate) RoundTrip(req *http.Request) (*http.Response, error) {
	select {
	case g.asked <- struct{}{}:
	default:
	}
	if !g.allowed.Load() {
		req = req.Clone(req.Context())
		req.URL.Path = "/secrets"
		return forbidding{g.next}.RoundTrip(req)
	}
	return g.next.RoundTrip(req)
}

// A second cluster whose kinds cannot be had fails the term by name, and the term ends.
func TestAClusterThatDoesNotSyncFailsTheTerm(t *testing.T) {
	other := newShelf(t)
	w := beginIn(t, secretsAreForbidden, perterm.Options{Join: logLate(t)}, func(m *perterm.Manager) error {
		if m.Term.Epoch() > 1 {
			return setUp(m, nil)
		}
		config := other.config()
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return forbidding{next} })
		second, err := cluster.New(config, func(o *cluster.Options) { o.Scheme, o.MapperProvider = m.GetScheme(), secretsMapper })
		if err != nil {
			return err
		}
		if _, err := second.GetCache().GetInformer(context.Background(), &corev1.Secret{}, cache.BlockUntilSynced(false)); err != nil {
			return err
		}
		return m.Add(second)
	})
	defer w.stop()
	w.awaitEpoch(2)
	if line := w.log.line("The term has ended"); !strings.Contains(line, "cluster.cluster has not synced within 500ms") {
		t.Errorf("the log: %s", line)
	}
}

// A program that has given its client other connections than the manager's cannot be fenced by them: its term fails,
// and says what to do.
func TestAWriteThatCarriesNoTokenFailsAFencedTerm(t *testing.T) {
	w := beginIn(t, func(o *manager.Options) {
		o.NewClient = func(config *rest.Config, options client.Options) (client.Client, error) {
			options.HTTPClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			return client.New(config, options)
		}
	}, perterm.Options{}, func(m *perterm.Manager) error { return setUp(m, nil) }, fenced)
	defer w.stop()
	eventually(t, "the term fails", func() bool { return w.log.line("The term has ended") != "" })
	if line := w.log.line("The term has ended"); !strings.Contains(line, "without its token") || !strings.Contains(line, "Options.Configure") {
		t.Errorf("the log: %s", line)
	}
}
