package embed

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/sample-apiserver/pkg/apis/wardle/v1alpha1"
	sampleserver "k8s.io/sample-apiserver/pkg/cmd/server"
	"k8s.io/sample-apiserver/pkg/generated/clientset/versioned"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/examples/apiserver/lead"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/control/loop"
	"github.com/regent-project/regent/pkg/election/join"
	"github.com/regent-project/regent/pkg/election/leader"
	"github.com/regent-project/regent/test/etcdtest"
)

var manyTerms = flag.Int("terms", 40, "how many terms the sample server leads in TestTermsOfTheSampleLeaveNothing")

// program is examples/apiserver in this process, with controllers of the test's.
type program struct {
	*world
	client versioned.Interface
	log    *text
}

// reconciler describes a controller of Flunders.
func reconciler(informer cache.SharedIndexInformer, name string, reconcile func(context.Context, *rest.Config, cache.ObjectName) error, config *rest.Config) control.Descriptor[election.Term] {
	return control.Descriptor[election.Term]{Name: name, New: func(ctx context.Context, term election.Term) (control.Controller, error) {
		own := leader.ForTerm(ctx, config, term)
		l := loop.New(name, 2, func(ctx context.Context, key cache.ObjectName) error { return reconcile(ctx, own, key) })
		loop.Watch(l, informer, func(f *v1alpha1.Flunder) []cache.ObjectName { return []cache.ObjectName{cache.MetaObjectToName(f)} })
		return l, nil
	}}
}

// registered is whether the versions are registered that sample servers ask for. A process can do that once.
var registered sync.Once

// runProgram serves and leads until the test ends.
func runProgram(t *testing.T, set func(*rest.Config, cache.SharedIndexInformer) []control.Descriptor[election.Term]) *program {
	t.Helper()
	p := &program{world: &world{t: t, way: etcdtest.Start(t)}, log: &text{}}
	logger := funcr.New(func(_, args string) { _, _ = p.log.Write([]byte(args + "\n")) }, funcr.Options{})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the server's log:\n%s", p.log.b.String())
		}
	})
	ctx, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(t.Context()), logger))
	o := sampleserver.NewWardleServerOptions(io.Discard, io.Discard)
	registered.Do(func() { sampleserver.NewCommandStartWardleServer(ctx, o, true) })
	recommended := o.RecommendedOptions
	recommended.Authentication, recommended.Authorization, recommended.CoreAPI, recommended.Admission = nil, nil, nil, nil
	recommended.Features.EnablePriorityAndFairness = false
	to := &recommended.Etcd.StorageConfig.Transport
	to.ServerList, to.CertFile, to.KeyFile, to.TrustedCAFile = p.way.ServerList, p.way.CertFile, p.way.KeyFile, p.way.TrustedCAFile
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	recommended.SecureServing.Listener, recommended.SecureServing.BindPort = listener, listener.Addr().(*net.TCPAddr).Port
	recommended.SecureServing.BindAddress, recommended.SecureServing.ServerCert.CertDirectory = net.IPv4(127, 0, 0, 1), t.TempDir()
	config, err := o.Config()
	if err != nil {
		t.Fatal(err)
	}
	if p.guard, err = lead.Guard(ctx, recommended.Etcd, config.GenericConfig); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.guard.Uninstall)
	s, err := config.Complete().New()
	if err != nil {
		t.Fatal(err)
	}
	loopback := config.GenericConfig.LoopbackClientConfig
	informer := o.SharedInformerFactory.Wardle().V1alpha1().Flunders().Informer()
	// A busy machine, or a disk that is slow for seconds, ends no term: the tests do, and they count them.
	cfg := leader.Config{Namespace: "default", Name: "leader", Detection: election.DetectOff,
		LeaseDuration: 30 * time.Second, RenewDeadline: 25 * time.Second, RetryPeriod: 200 * time.Millisecond, DrainTimeout: time.Second}
	if err := lead.Add(s.GenericAPIServer, p.guard, cfg, set(loopback, informer)...); err != nil {
		t.Fatal(err)
	}
	if p.leases, err = p.guard.LeaseClient("default"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.leases.Close)
	served := make(chan error, 1)
	go func() { served <- s.GenericAPIServer.PrepareRun().RunWithContext(ctx) }()
	o.SharedInformerFactory.Start(ctx.Done())
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("the server ended with %v", err)
		}
		o.SharedInformerFactory.Shutdown()
	})
	quiet := rest.CopyConfig(loopback)
	quiet.WarningHandler = rest.NoWarnings{}
	if p.client, err = versioned.NewForConfig(quiet); err != nil {
		t.Fatal(err)
	}
	return p
}

// create creates a Flunder, once the server serves.
func (p *program) create(name string) {
	p.t.Helper()
	eventually(p.t, "a Flunder is created", func() bool {
		_, err := p.client.WardleV1alpha1().Flunders("default").Create(p.t.Context(), flunder(name, ""), metav1.CreateOptions{})
		return err == nil
	})
}

// holder returns who leads, and the term.
func (p *program) holder() (holder string, epoch int) {
	p.t.Helper()
	list, err := p.leases.List(p.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=leader"})
	if err != nil {
		p.t.Fatal(err)
	}
	if len(list.Items) == 0 {
		return "", 0
	}
	spec := list.Items[0].Spec
	return ptr.Deref(spec.HolderIdentity, ""), int(ptr.Deref(spec.LeaseTransitions, 0))
}

// steal has another one take the Lease.
func (p *program) steal() {
	p.edit(func(s *coordinationv1.LeaseSpec) {
		s.HolderIdentity, s.LeaseTransitions = ptr.To("thief"), ptr.To(ptr.Deref(s.LeaseTransitions, 0)+1)
		s.RenewTime, s.LeaseDurationSeconds = ptr.To(metav1.NowMicro()), ptr.To(int32(3600))
	})
}

// staysFree checks that nobody leads for some retry periods, although the Lease is free.
func (p *program) staysFree() {
	p.t.Helper()
	for range 20 {
		if holder, epoch := p.holder(); holder != "" {
			p.t.Errorf("%s leads in term %d, before what is left of the last one has ended", holder, epoch)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestFaultyControllersOfTheSampleAreNamedAndRecovered(t *testing.T) {
	var panicked atomic.Bool
	var good atomic.Int32
	hangs, late := make(chan struct{}), make(chan struct{})
	var hung, left atomic.Int32
	p := runProgram(t, func(config *rest.Config, informer cache.SharedIndexInformer) []control.Descriptor[election.Term] {
		return []control.Descriptor[election.Term]{
			reconciler(informer, "good", func(context.Context, *rest.Config, cache.ObjectName) error { good.Add(1); return nil }, config),
			reconciler(informer, "brittle", func(context.Context, *rest.Config, cache.ObjectName) error {
				if !panicked.Swap(true) {
					panic("boom")
				}
				return nil
			}, config),
			reconciler(informer, "hangs", func(context.Context, *rest.Config, cache.ObjectName) error {
				if hung.Add(1) == 1 {
					<-hangs // it does not look at its context
				}
				return nil
			}, config),
			{Name: "careless", New: func(context.Context, election.Term) (control.Controller, error) {
				return join.Controller(join.Starting(func(context.Context) error {
					if left.Add(1) == 2 {
						go func() { <-late }()
					}
					return nil
				})), nil
			}},
		}
	})
	p.create("a")

	eventually(t, "all have begun", func() bool { return panicked.Load() && hung.Load() > 0 && good.Load() > 0 && left.Load() == 1 })
	eventually(t, "who has panicked is named", func() bool { return p.log.line("brittle", "boom") })
	holder, epoch := p.holder()
	if holder == "" || epoch != 1 {
		t.Errorf("%q leads in term %d: a panic has ended the first", holder, epoch)
	}

	p.steal()
	eventually(t, "who hangs is named", func() bool { return p.log.line("Controller is late", `"controller"="hangs"`) })
	eventually(t, "the replica is quarantined", func() bool { return p.log.line("Quarantined") })
	p.release()
	p.staysFree()
	close(hangs)
	eventually(t, "it leads again", func() bool { holder, _ := p.holder(); return holder != "" && left.Load() == 2 })

	p.steal()
	eventually(t, "what was left behind is named", func() bool {
		return p.log.line("Goroutines are late", "TestFaultyControllersOfTheSampleAreNamedAndRecovered")
	})
	p.release()
	p.staysFree()
	before := good.Load()
	close(late)
	eventually(t, "it leads again", func() bool { holder, _ := p.holder(); return holder != "" && good.Load() > before })
	if _, err := p.client.WardleV1alpha1().Flunders("default").Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Errorf("the server: %v", err)
	}
}

// line reports whether one line has all these words.
func (l *text) line(words ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			return true
		}
	}
	return false
}

// holdings are what a process holds.
type holdings struct{ goroutines, sockets, series int }

func (h holdings) String() string {
	return fmt.Sprintf("%d goroutines, %d sockets, %d series", h.goroutines, h.sockets, h.series)
}

func holds(t *testing.T) (h holdings) {
	t.Helper()
	h.goroutines = runtime.NumGoroutine()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // not on Linux
		t.Fatal(err)
	}
	for _, fd := range fds {
		if at, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); err == nil && strings.HasPrefix(at, "socket:") {
			h.sockets++
		}
	}
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		h.series += len(f.GetMetric())
	}
	return h
}

// The server leads again and again, because others take the Lease, and is what it was. An informer's handler has
// goroutines, so these count handlers, too.
func TestTermsOfTheSampleLeaveNothing(t *testing.T) {
	// upstream's compactor begins a watch some seconds after the start, and a first conflict is a series; 20 terms
	// that leave one thing each are more
	const slack = 10
	if *manyTerms <= 20+slack {
		t.Fatalf("-terms=%d: give more than %d, so that a leak of one thing a term is seen", *manyTerms, 20+slack)
	}
	p := runProgram(t, func(config *rest.Config, informer cache.SharedIndexInformer) []control.Descriptor[election.Term] {
		return []control.Descriptor[election.Term]{reconciler(informer, "counts", func(ctx context.Context, own *rest.Config, key cache.ObjectName) error {
			client, err := versioned.NewForConfig(own)
			if err != nil {
				return err
			}
			f, err := client.WardleV1alpha1().Flunders(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
			if err != nil || f.Labels["round"] == f.Labels["done"] {
				return err
			}
			f.Labels["done"] = f.Labels["round"]
			_, err = client.WardleV1alpha1().Flunders(key.Namespace).Update(ctx, f, metav1.UpdateOptions{})
			return err
		}, config)}
	})
	p.create("a")
	flunders := p.client.WardleV1alpha1().Flunders("default")
	var early holdings
	for term := 1; term <= *manyTerms; term++ {
		round := strconv.Itoa(term)
		eventually(t, "there is work", func() bool {
			f, err := flunders.Get(t.Context(), "a", metav1.GetOptions{})
			if err == nil {
				metav1.SetMetaDataLabel(&f.ObjectMeta, "round", round)
				_, err = flunders.Update(t.Context(), f, metav1.UpdateOptions{})
			}
			if err != nil && !apierrors.IsConflict(err) {
				t.Fatal(err)
			}
			return err == nil
		})
		eventually(t, "it is done in term "+round, func() bool {
			f, err := flunders.Get(t.Context(), "a", metav1.GetOptions{})
			return err == nil && f.Labels["done"] == round
		})
		switch now := holds(t); {
		case term == 20:
			early = now
			t.Logf("after %d terms: %v", term, early)
		case term == *manyTerms:
			eventually(t, "it holds no more than early on", func() bool {
				now = holds(t)
				return now.goroutines <= early.goroutines+slack && now.sockets <= early.sockets+slack && now.series <= early.series+slack
			})
			t.Logf("after %d terms: %v", term, now)
		case term%250 == 0:
			t.Logf("after %d terms: %v", term, now)
		}
		p.steal()
		p.release()
	}
}
